package penstocksql;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.table.api.CompiledPlan;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.ExplainDetail;
import org.apache.flink.table.api.ExplainFormat;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.internal.TableEnvironmentInternal;
import org.apache.flink.table.catalog.Column;
import org.apache.flink.table.operations.ExplainOperation;
import org.apache.flink.table.operations.ModifyOperation;
import org.apache.flink.table.operations.Operation;
import org.apache.flink.table.operations.QueryOperation;
import org.apache.flink.table.operations.ShowOperation;
import org.apache.flink.table.operations.DescribeTableOperation;
import org.apache.flink.table.operations.StatementSetOperation;
import org.apache.flink.table.operations.ddl.CreateTableOperation;
import org.apache.flink.table.operations.ddl.DropTableOperation;
import org.apache.flink.table.functions.UserDefinedFunction;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.utils.DataTypeUtils;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * Flink's planner as a process: it reads one JSON request per line and answers each with one JSON line.
 *
 * <p>Janino compiles this file, so it has no lambdas, and it casts the results of generic methods.
 */
public class PlannerMain {
    private final TableEnvironmentInternal env;
    private int collected = 0;

    private PlannerMain(String mode) {
        EnvironmentSettings.Builder settings = EnvironmentSettings.newInstance().withBuiltInCatalogName("__builtin");
        settings = mode.equals("batch") ? settings.inBatchMode() : settings.inStreamingMode();
        this.env = (TableEnvironmentInternal) TableEnvironment.create(settings.build());
        this.env.registerCatalog("default_catalog", new PenstockCatalog());
        this.env.useCatalog("default_catalog");
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        ObjectMapper json = new ObjectMapper();
        PlannerMain planner = new PlannerMain(arguments[0]);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            Map answer;
            try {
                answer = planner.answer((Map) json.readValue(line, Map.class));
            } catch (Throwable error) {
                answer = failure(error);
            }
            answers.write((json.writeValueAsString(answer) + "\n").getBytes("UTF-8"));
            answers.flush();
        }
    }

    private static Map failure(Throwable error) {
        List messages = new ArrayList();
        for (Throwable cause = error; cause != null && messages.size() < 20; cause = cause.getCause()) {
            messages.add(cause.getClass().getName() + ": " + cause.getMessage());
        }
        Map answer = new LinkedHashMap();
        answer.put("errors", messages);
        return answer;
    }

    private Map answer(Map request) throws Exception {
        String sql = (String) request.get("sql");
        String action = (String) request.get("action");
        if (action.equals("set")) {
            env.getConfig().getConfiguration().setString((String) request.get("key"), (String) request.get("value"));
            return result("done");
        }
        if (action.equals("reset")) {
            env.getConfig().getConfiguration().removeKey((String) request.get("key"));
            return result("done");
        }
        if (action.equals("explain")) {
            Map answer = result("explained");
            answer.put("text", env.explainSql(sql, ExplainFormat.TEXT, new ExplainDetail[0]));
            return answer;
        }
        if (action.equals("view")) {
            env.createTemporaryView((String) request.get("name"), env.sqlQuery(sql));
            return result("done");
        }
        if (action.equals("schema")) {
            Map answer = result("described");
            List names = new ArrayList();
            List types = new ArrayList();
            List columns = env.sqlQuery(sql).getResolvedSchema().getColumns();
            for (int i = 0; i < columns.size(); i++) {
                Column column = (Column) columns.get(i);
                names.add(column.getName());
                types.add(DataTypeUtils.removeTimeAttribute(column.getDataType()).getLogicalType().asSerializableString());
            }
            answer.put("names", names);
            answer.put("types", types);
            return answer;
        }
        if (action.equals("function")) {
            return function(request);
        }
        if (action.equals("set-of-statements")) {
            String all = String.join("\n", new String[] {"EXECUTE STATEMENT SET BEGIN", sql, "END"});
            return planOf((Operation) env.getParser().parse(all).get(0));
        }
        List operations = env.getParser().parse(sql);
        if (operations.size() != 1) {
            throw new IllegalArgumentException("one statement is expected, got " + operations.size());
        }
        return execute((Operation) operations.get(0), sql);
    }

    private Map function(Map request) throws Exception {
        String name = (String) request.get("name");
        String arguments = (String) request.get("arguments");
        UserDefinedFunction function = PenstockFunctions.create(
            (String) request.get("kind"),
            arguments.isEmpty() ? null : (List) new ObjectMapper().readValue(arguments, List.class),
            (String) request.get("result"),
            "true".equals(request.get("deterministic")));
        if ("system".equals(request.get("scope"))) {
            env.createTemporarySystemFunction(name, function);
        } else {
            env.createTemporaryFunction(name, function);
        }
        return result("done");
    }

    private Map execute(Operation operation, String sql) throws Exception {
        if (operation instanceof QueryOperation) {
            return query(sql);
        }
        if (operation instanceof ModifyOperation || operation instanceof StatementSetOperation) {
            return planOf(operation);
        }
        if (operation instanceof CreateTableOperation) {
            CreateTableOperation create = (CreateTableOperation) operation;
            operation = new CreateTableOperation(
                create.getTableIdentifier(), create.getCatalogTable(), create.isIgnoreIfExists(), false);
        } else if (operation instanceof DropTableOperation) {
            DropTableOperation drop = (DropTableOperation) operation;
            operation = new DropTableOperation(drop.getTableIdentifier(), drop.isIfExists(), false);
        }
        TableResult executed = env.executeInternal(operation);
        Map answer = result(operation instanceof ExplainOperation ? "explained" : "rows");
        List rows = new ArrayList();
        CloseableIterator found = executed.collect();
        while (found.hasNext()) {
            Row row = (Row) found.next();
            List values = new ArrayList();
            for (int i = 0; i < row.getArity(); i++) {
                Object value = row.getField(i);
                values.add(value == null || value instanceof Boolean || value instanceof Number ? value : value.toString());
            }
            rows.add(values);
        }
        answer.put("names", executed.getResolvedSchema().getColumnNames());
        answer.put("rows", rows);
        if (operation instanceof ExplainOperation) {
            answer.put("text", ((List) rows.get(0)).get(0));
        }
        return answer;
    }

    /** Compile a query as an INSERT into a table of the collecting connector. The table has the query's columns. */
    private Map query(String sql) throws Exception {
        Table table = env.sqlQuery(sql);
        Schema.Builder schema = Schema.newBuilder();
        List columns = table.getResolvedSchema().getColumns();
        List names = new ArrayList();
        List types = new ArrayList();
        for (int i = 0; i < columns.size(); i++) {
            Column column = (Column) columns.get(i);
            DataType type = DataTypeUtils.removeTimeAttribute(column.getDataType());
            schema.column(column.getName(), type);
            names.add(column.getName());
            types.add(type.getLogicalType().asSerializableString());
        }
        String path = "__collect_" + (collected++);
        env.createTable(path, TableDescriptor.forConnector("penstock-collect").schema(schema.build()).build());
        try {
            CompiledPlan plan = table.insertInto(path).compilePlan();
            Map answer = result("query");
            answer.put("plan", plan.asJsonString());
            answer.put("names", names);
            answer.put("types", types);
            return answer;
        } finally {
            env.executeSql("DROP TABLE " + path);
        }
    }

    private Map planOf(Operation operation) throws Exception {
        List operations = operation instanceof StatementSetOperation
            ? ((StatementSetOperation) operation).getOperations() : Arrays.asList(new Object[] {operation});
        Map answer = result("insert");
        answer.put("plan", env.compilePlan(operations).asJsonString());
        return answer;
    }

    private static Map result(String kind) {
        Map answer = new LinkedHashMap();
        answer.put("kind", kind);
        return answer;
    }
}
