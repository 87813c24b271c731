package penstock;

import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.streaming.StreamingShuffleHandle;
import org.apache.spark.shuffle.streaming.StreamingShuffleManager;
import org.apache.spark.shuffle.streaming.StreamingShuffleWriter;
import org.apache.spark.util.ErrorNotifier;
import scala.None$;

/**
 * Spark's streaming shuffle over encrypted connections (`spark.shuffle.manager.incremental`).
 *
 * Spark's writer creates its server in a private method that its constructor calls. No option restricts the clients or
 * sets the address. So the writer and the reader are copies of Spark's classes under other names. The build of the
 * engine's jar creates these copies. They use SealedTransport instead of Spark's TransportContext. The build also
 * changes references to the reader in the engine's other classes to the copy.
 */
public class SealedShuffleManager extends StreamingShuffleManager {
  public static final String PACKAGE = "penstock.shuffle.";

  public ShuffleWriter getWriter(
      ShuffleHandle handle, long mapId, TaskContext context, ShuffleWriteMetricsReporter metrics) {
    return new PromptWriter((StreamingShuffleHandle) handle, context, (StreamingShuffleWriter) create(
        "StreamingShuffleWriter", new Object[] {handle, Long.valueOf(mapId), context, none(), new ErrorNotifier()}));
  }

  public ShuffleReader getReader(
      ShuffleHandle handle, int startMap, int endMap, int startPartition, int endPartition, TaskContext context,
      ShuffleReadMetricsReporter metrics) {
    return (ShuffleReader) create(
        "StreamingShuffleReader", new Object[] {handle, context, none(), new ErrorNotifier()});
  }

  private static Object none() {
    return None$.MODULE$;
  }

  private static Object create(String name, Object[] arguments) {
    try {
      Class made = Class.forName(PACKAGE + name, true, SealedShuffleManager.class.getClassLoader());
      return made.getConstructors()[0].newInstance(arguments);
    } catch (java.lang.reflect.InvocationTargetException error) {
      throw new RuntimeException(error.getCause());
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException("the engine's jar has no " + name, error);
    }
  }
}
