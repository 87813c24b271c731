package penstocksql;

import java.util.Optional;

import org.apache.flink.table.catalog.GenericInMemoryCatalog;

/** The catalog of the planner's tables. Its factory accepts the connectors of Penstock, so no connector of Flink is needed. */
public class PenstockCatalog extends GenericInMemoryCatalog {
    public PenstockCatalog() {
        super("default_catalog", "default_database");
    }

    public Optional getFactory() {
        return Optional.of(new PenstockTables());
    }
}
