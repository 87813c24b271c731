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
 * Spark's streaming shuffle over sealed connections (`spark.shuffle.manager.incremental`).
 *
 * Spark's writer makes its server in a private method of its constructor, with nothing to say about who may connect, or
 * from where. So writer and reader are Spark's own classes under other names, made with the jar, that say SealedTransport
 * where Spark's say TransportContext. Where the engine's other classes name the reader, they mean this one once the jar is
 * made.
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
