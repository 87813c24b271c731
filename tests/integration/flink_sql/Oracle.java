package penstocksql;

import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.util.CloseableIterator;

/** Runs queries in Flink's MiniCluster. Arguments: a JSON file with the tables and the queries, and the file of the results. */
public class Oracle {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        Map input = (Map) json.readValue(Files.readAllBytes(Paths.get(arguments[0])), Map.class);
        TableEnvironment env = TableEnvironment.create(EnvironmentSettings.newInstance().inStreamingMode().build());
        env.getConfig().getConfiguration().setString("parallelism.default", "1");
        env.getConfig().getConfiguration().setString("table.local-time-zone", "UTC");
        List tables = (List) input.get("tables");
        for (int i = 0; i < tables.size(); i++) {
            env.executeSql((String) tables.get(i));
        }
        Map queries = (Map) input.get("queries");
        Map results = new LinkedHashMap();
        Object[] names = queries.keySet().toArray();
        for (int i = 0; i < names.length; i++) {
            List rows = new ArrayList();
            Map options = (Map) ((Map) input.get("options")).get(names[i]);
            Object[] keys = options == null ? new Object[0] : options.keySet().toArray();
            for (int k = 0; k < keys.length; k++) {
                env.getConfig().getConfiguration().setString((String) keys[k], (String) options.get(keys[k]));
            }
            try {
                CloseableIterator found = env.executeSql((String) queries.get(names[i])).collect();
                while (found.hasNext()) {
                    rows.add(found.next().toString());
                }
            } catch (Throwable error) {
                throw new IllegalStateException("the query " + names[i] + " failed", error);
            }
            results.put(names[i], rows);
            for (int k = 0; k < keys.length; k++) {
                env.getConfig().getConfiguration().removeKey((String) keys[k]);
            }
        }
        Files.write(Paths.get(arguments[1]), json.writeValueAsBytes(results));
        System.exit(0);
    }
}
