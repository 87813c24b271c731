package penstocksql;

import java.util.Collections;
import java.util.Map;
import java.util.Set;

import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.table.api.ValidationException;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.sink.SinkV2Provider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.SourceProvider;
import org.apache.flink.table.factories.DynamicTableFactory;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.DynamicTableSourceFactory;

/**
 * The factory of all tables. It tells the planner the changelog modes of a connector. Only EXPLAIN uses its providers.
 *
 * <p>The property penstock.connectors lists the connectors as "name:reads:writes". Each part names a changelog mode, or is empty.
 */
public class PenstockTables implements DynamicTableSourceFactory, DynamicTableSinkFactory {
    public String factoryIdentifier() {
        return "penstock";
    }

    public Set requiredOptions() {
        return Collections.emptySet();
    }

    public Set optionalOptions() {
        return Collections.emptySet();
    }

    public DynamicTableSource createDynamicTableSource(DynamicTableFactory.Context context) {
        return new Scan(mode(context, 1, "read"));
    }

    public DynamicTableSink createDynamicTableSink(DynamicTableFactory.Context context) {
        return new Sink(mode(context, 2, "write"));
    }

    private static String mode(DynamicTableFactory.Context context, int part, String verb) {
        Map options = context.getCatalogTable().getOptions();
        String connector = (String) options.get("connector");
        if (connector == null) {
            throw new ValidationException("table " + context.getObjectIdentifier().asSummaryString() + " has no option 'connector'");
        }
        String[] known = System.getProperty("penstock.connectors").split(",");
        StringBuilder names = new StringBuilder();
        for (int i = 0; i < known.length; i++) {
            String[] parts = known[i].split(":", 3);
            if (parts[part].isEmpty()) {
                continue;
            }
            if (parts[0].equals(connector)) {
                return parts[part];
            }
            if (!parts[0].startsWith("penstock-")) {
                names.append(names.length() == 0 ? "" : ", ").append(parts[0]);
            }
        }
        throw new ValidationException("table " + context.getObjectIdentifier().asSummaryString() + ": SQL cannot " + verb
            + " tables of the connector '" + connector + "'. Connectors that can: " + names);
    }

    private static ChangelogMode modeOf(String name, ChangelogMode requested) {
        if (name.equals("insert")) {
            return ChangelogMode.insertOnly();
        }
        if (name.equals("upsert")) {
            return ChangelogMode.upsert();
        }
        return requested == null ? ChangelogMode.all() : requested;
    }

    public static class Scan implements ScanTableSource {
        private final String mode;

        public Scan(String mode) {
            this.mode = mode;
        }

        public ChangelogMode getChangelogMode() {
            return modeOf(mode, null);
        }

        public ScanTableSource.ScanRuntimeProvider getScanRuntimeProvider(ScanTableSource.ScanContext context) {
            return SourceProvider.of(new NumberSequenceSource(0L, 0L));
        }

        public DynamicTableSource copy() {
            return new Scan(mode);
        }

        public String asSummaryString() {
            return "Penstock";
        }
    }

    public static class Sink implements DynamicTableSink {
        private final String mode;

        public Sink(String mode) {
            this.mode = mode;
        }

        public ChangelogMode getChangelogMode(ChangelogMode requested) {
            return modeOf(mode, requested);
        }

        public DynamicTableSink.SinkRuntimeProvider getSinkRuntimeProvider(DynamicTableSink.Context context) {
            return SinkV2Provider.of(new DiscardingSink());
        }

        public DynamicTableSink copy() {
            return new Sink(mode);
        }

        public String asSummaryString() {
            return "Penstock";
        }
    }
}
