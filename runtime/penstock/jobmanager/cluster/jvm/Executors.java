package penstock;

import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.storage.BlockManagerId;
import scala.Tuple2;
import scala.collection.Iterator;

/** The executors that are registered now. */
public class Executors extends SparkListener {
  private final ConcurrentHashMap cores = new ConcurrentHashMap();

  public void onExecutorAdded(SparkListenerExecutorAdded added) {
    this.cores.put(added.executorId(), Integer.valueOf(added.executorInfo().totalCores()));
  }

  public void onExecutorRemoved(SparkListenerExecutorRemoved removed) {
    this.cores.remove(removed.executorId());
  }

  /** Returns one line "id host port cores" for each executor. */
  public String list(SparkContext context) {
    StringBuilder lines = new StringBuilder();
    Iterator entries = SparkEnv.get().blockManager().master().getMemoryStatus().iterator();
    while (entries.hasNext()) {
      BlockManagerId id = (BlockManagerId) ((Tuple2) entries.next())._1();
      Object cores = this.cores.get(id.executorId());
      if (!id.isDriver() && cores != null) {
        lines.append(id.executorId()).append(' ').append(id.host()).append(' ').append(id.port());
        lines.append(' ').append(cores).append('\n');
      }
    }
    return lines.toString();
  }
}
