package penstock;

import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.ExecutorProcessLost;
import org.apache.spark.scheduler.ExternalClusterManager;
import org.apache.spark.scheduler.SchedulerBackend;
import org.apache.spark.scheduler.TaskScheduler;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend;
import org.apache.spark.scheduler.local.LocalSchedulerBackend;
import scala.None$;

/**
 * A cluster whose executors are started by TaskManagers and not by Spark. They register with the driver.
 *
 * Spark finds this class by the master's name "penstock" (META-INF/services). An executor is lost as soon as its
 * connection closes. If the name is "penstock-embedded", tasks run in the driver's JVM, and no executor registers.
 */
public class SlotCluster implements ExternalClusterManager {
  private static final String EMBEDDED = "penstock-embedded";
  /** Maximum number of concurrent tasks: 64 slots of 16 levels. Spark does not know the current number of slots. */
  private static final int MOST_TASKS = 1024;

  public boolean canCreate(String master) {
    return master.equals("penstock") || master.equals(EMBEDDED);
  }

  public TaskScheduler createTaskScheduler(SparkContext context, String master) {
    return new TaskSchedulerImpl(context);
  }

  public SchedulerBackend createSchedulerBackend(SparkContext context, String master, TaskScheduler scheduler) {
    if (master.equals(EMBEDDED)) {
      return new LocalSchedulerBackend(context.getConf(), (TaskSchedulerImpl) scheduler, MOST_TASKS);
    }
    return new CoarseGrainedSchedulerBackend((TaskSchedulerImpl) scheduler, context.env().rpcEnv());
  }

  public void initialize(TaskScheduler scheduler, SchedulerBackend backend) {
    ((TaskSchedulerImpl) scheduler).initialize(backend);
  }

  /** Makes Spark remove an executor whose TaskManager is lost. The call has no effect if Spark has already removed the
   * executor. */
  public void remove(SparkContext context, String executor, String why) {
    ((CoarseGrainedSchedulerBackend) context.schedulerBackend())
        .removeExecutor(executor, new ExecutorProcessLost(why, None$.MODULE$, false));
  }
}
