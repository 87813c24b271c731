package penstocksql;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

import org.apache.flink.table.catalog.DataTypeFactory;
import org.apache.flink.table.functions.AggregateFunction;
import org.apache.flink.table.functions.ScalarFunction;
import org.apache.flink.table.functions.TableFunction;
import org.apache.flink.table.functions.UserDefinedFunction;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.inference.InputTypeStrategies;
import org.apache.flink.table.types.inference.TypeInference;
import org.apache.flink.table.types.inference.TypeStrategies;

/** Functions of Python programs, as the planner sees them: only their types. The planner never calls them. */
public class PenstockFunctions {
    public static UserDefinedFunction create(String kind, List arguments, String result, boolean deterministic) {
        Types types = new Types(arguments == null ? null : new ArrayList(arguments), result, deterministic);
        if (kind.equals("table")) {
            return new Table(types);
        }
        return kind.equals("aggregate") ? (UserDefinedFunction) new Aggregate(types) : new Scalar(types);
    }

    public static class Types implements java.io.Serializable {
        private final ArrayList arguments;
        private final String result;
        private final boolean deterministic;

        public Types(ArrayList arguments, String result, boolean deterministic) {
            this.arguments = arguments;
            this.result = result;
            this.deterministic = deterministic;
        }

        public TypeInference inference(DataTypeFactory factory, boolean isAggregate) {
            TypeInference.Builder builder = TypeInference.newBuilder();
            if (arguments == null) {
                builder.inputTypeStrategy(InputTypeStrategies.WILDCARD);
            } else {
                DataType[] types = new DataType[arguments.size()];
                for (int i = 0; i < types.length; i++) {
                    types[i] = factory.createDataType((String) arguments.get(i));
                }
                builder.typedArguments(types);
            }
            if (isAggregate) {
                builder.accumulatorTypeStrategy(TypeStrategies.explicit(factory.createDataType("BYTES")));
            }
            builder.outputTypeStrategy(TypeStrategies.explicit(factory.createDataType(result)));
            return builder.build();
        }
    }

    public static class Scalar extends ScalarFunction {
        private final Types types;

        public Scalar(Types types) {
            this.types = types;
        }

        public Object eval(Object[] arguments) {
            throw new UnsupportedOperationException();
        }

        public TypeInference getTypeInference(DataTypeFactory factory) {
            return types.inference(factory, false);
        }

        public boolean isDeterministic() {
            return types.deterministic;
        }

        public boolean supportsConstantFolding() {
            return false;
        }
    }

    public static class Table extends TableFunction {
        private final Types types;

        public Table(Types types) {
            this.types = types;
        }

        public void eval(Object[] arguments) {
            throw new UnsupportedOperationException();
        }

        public TypeInference getTypeInference(DataTypeFactory factory) {
            return types.inference(factory, false);
        }

        public boolean isDeterministic() {
            return types.deterministic;
        }
    }

    public static class Aggregate extends AggregateFunction {
        private final Types types;

        public Aggregate(Types types) {
            this.types = types;
        }

        public Object createAccumulator() {
            return new byte[0];
        }

        public void accumulate(Object accumulator, Object[] arguments) {
            throw new UnsupportedOperationException();
        }

        public void retract(Object accumulator, Object[] arguments) {
            throw new UnsupportedOperationException();
        }

        public Object getValue(Object accumulator) {
            throw new UnsupportedOperationException();
        }

        public TypeInference getTypeInference(DataTypeFactory factory) {
            return types.inference(factory, true);
        }

        public boolean isDeterministic() {
            return types.deterministic;
        }
    }
}
