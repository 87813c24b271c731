package penstock;

import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.ExecutorProcessLost;
import org.apache.spark.scheduler.ExternalClusterManager;
import org.apache.spark.scheduler.SchedulerBackend;
import org.apache.spark.scheduler.TaskScheduler;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend;
import scala.None$;

/**
 * A cluster whose executors nobody starts for Spark: TaskManagers do, and they register with the driver.
 *
 * Spark finds it by the master's name "penstock" (META-INF/services). An executor is lost as soon as its connection is.
 */
public class SlotCluster implements ExternalClusterManager {
  public boolean canCreate(String master) {
    return master.equals("penstock");
  }

  public TaskScheduler createTaskScheduler(SparkContext context, String master) {
    return new TaskSchedulerImpl(context);
  }

  public SchedulerBackend createSchedulerBackend(SparkContext context, String master, TaskScheduler scheduler) {
    return new CoarseGrainedSchedulerBackend((TaskSchedulerImpl) scheduler, context.env().rpcEnv());
  }

  public void initialize(TaskScheduler scheduler, SchedulerBackend backend) {
    ((TaskSchedulerImpl) scheduler).initialize(backend);
  }

  /** Have Spark forget an executor whose TaskManager has gone; harmless if it has already. */
  public void remove(SparkContext context, String executor, String why) {
    ((CoarseGrainedSchedulerBackend) context.schedulerBackend())
        .removeExecutor(executor, new ExecutorProcessLost(why, None$.MODULE$, false));
  }
}
