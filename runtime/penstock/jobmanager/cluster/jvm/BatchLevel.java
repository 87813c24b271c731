package penstock;

import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonRDD;
import org.apache.spark.rdd.RDD;
import scala.collection.Iterator;

/**
 * A level of the batched runner: a PythonRDD that keeps its worker, with the state in it, for the next epoch.
 *
 * An executor has several slots, and Spark may use any idle Python worker of the same module and environment. So each
 * slot has a separate environment and with it a separate pool, which contains one worker.
 */
public class BatchLevel extends PythonRDD {
  public static final String SLOT = "PENSTOCK_SLOT";

  private final PythonFunction function;
  private final String jobId;
  private final String[] slots;

  public BatchLevel(RDD prev, PythonFunction function, String jobId, String[] slots) {
    super(prev, function, true, false);
    this.function = function;
    this.jobId = jobId;
    this.slots = slots;
  }

  /** Called in the executor. The function arrived with this task, and no other task uses it. */
  public Iterator compute(Partition split, TaskContext context) {
    String slot = this.slots[split.index()];
    this.function.envVars().put(SLOT, slot);
    Readings.listen();
    HeldWorkers.hold(this.jobId, slot);
    return super.compute(split, context);
  }
}
