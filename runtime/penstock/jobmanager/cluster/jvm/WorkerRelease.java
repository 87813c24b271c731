package penstock;

import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.reflect.ClassTag$;

/** An RDD without rows. Computing a partition releases the job's Python workers in that executor. */
public class WorkerRelease extends RDD {
  private final String jobId;

  public WorkerRelease(RDD placed, String jobId) {
    super(placed, ClassTag$.MODULE$.apply(byte[].class));
    this.jobId = jobId;
  }

  public Partition[] getPartitions() {
    return this.firstParent(ClassTag$.MODULE$.apply(byte[].class)).partitions();
  }

  public Seq getPreferredLocations(Partition split) {
    return this.firstParent(ClassTag$.MODULE$.apply(byte[].class)).preferredLocations(split);
  }

  public Iterator compute(Partition split, TaskContext context) {
    HeldWorkers.release(this.jobId);
    return Lists.empty().iterator();
  }
}
