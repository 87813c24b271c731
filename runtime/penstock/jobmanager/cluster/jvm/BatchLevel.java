package penstock;

import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonRDD;
import org.apache.spark.rdd.RDD;
import scala.collection.Iterator;

/** A level of the batched runner: a PythonRDD whose worker is kept, with the state in it, for the next epoch. */
public class BatchLevel extends PythonRDD {
  private final String jobId;

  public BatchLevel(RDD prev, PythonFunction function, String jobId) {
    super(prev, function, true, false);
    this.jobId = jobId;
  }

  public Iterator compute(Partition split, TaskContext context) {
    HeldWorkers.hold(this.jobId);
    return super.compute(split, context);
  }
}
