package penstock;

import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.storage.BlockManagerId;
import scala.Tuple2;
import scala.collection.Iterator;

/** The executors that are registered now. */
public class Executors {
  /** One line "id host port" for each. */
  public String list(SparkContext context) {
    StringBuilder lines = new StringBuilder();
    Iterator entries = SparkEnv.get().blockManager().master().getMemoryStatus().iterator();
    while (entries.hasNext()) {
      BlockManagerId id = (BlockManagerId) ((Tuple2) entries.next())._1();
      if (!id.isDriver()) {
        lines.append(id.executorId()).append(' ').append(id.host()).append(' ').append(id.port()).append('\n');
      }
    }
    return lines.toString();
  }
}
