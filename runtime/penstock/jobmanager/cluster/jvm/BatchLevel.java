package penstock;

import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonRDD;
import org.apache.spark.rdd.RDD;
import scala.collection.Iterator;

/**
 * A level of the batched runner: a PythonRDD whose worker is kept, with the state in it, for the next epoch.
 *
 * An executor has several slots, and Spark lends any idle Python worker of the same module and environment. So each slot
 * has an environment of its own, and with it a pool of its own, in which there is one worker.
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

  /** In the executor: the function came with this task, and is nobody else's. */
  public Iterator compute(Partition split, TaskContext context) {
    String slot = this.slots[split.index()];
    this.function.envVars().put(SLOT, slot);
    Readings.listen();
    HeldWorkers.hold(this.jobId, slot);
    return super.compute(split, context);
  }
}
