package penstock;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Set;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.python.PythonWorkerFactory;
import scala.Option;

/**
 * Keeps the Python workers that hold the state of jobs in an executor.
 *
 * Spark ends the workers of a pool that was idle for a minute. Between two epochs of the batched runner, a DataFrame
 * may run for longer, and the state would be lost. No setting changes this time, so this class reports activity to the
 * pool until the job has ended. It reports activity only to the pools of the job's slots, because other workers hold no
 * state. If a Spark version has other internals, workers end after a minute and the job fails over, as it would without
 * this class.
 */
public class HeldWorkers extends Thread {
  private static final long PAUSE_MS = 5000L;
  /** Job -> the names of its slots in this executor. */
  private static final HashMap JOBS = new HashMap();
  private static boolean watched = false;

  private HeldWorkers() {
    super("penstock-held-workers");
    this.setDaemon(true);
  }

  public static void hold(String jobId, String slot) {
    synchronized (JOBS) {
      Set slots = (Set) JOBS.get(jobId);
      if (slots == null) {
        slots = new HashSet();
        JOBS.put(jobId, slots);
      }
      slots.add(slot);
      if (!watched) {
        watched = true;
        new HeldWorkers().start();
      }
    }
  }

  public static void release(String jobId) {
    synchronized (JOBS) {
      JOBS.remove(jobId);
    }
  }

  public void run() {
    try {
      Field pools = SparkEnv.class.getDeclaredField("pythonWorkers");
      pools.setAccessible(true);
      Field environment = PythonWorkerFactory.class.getDeclaredField("envVars");
      environment.setAccessible(true);
      Method touch = PythonWorkerFactory.class.getDeclaredMethod(
          "org$apache$spark$api$python$PythonWorkerFactory$$lastActivityNs_$eq", new Class[] {Long.TYPE});
      touch.setAccessible(true);
      while (this.isNeeded()) {
        Object[] factories = this.factories(pools);
        for (int i = 0; i < factories.length; i++) {
          Option slot = ((scala.collection.immutable.Map) environment.get(factories[i])).get(BatchLevel.SLOT);
          if (slot.isDefined() && isHeld(slot.get())) {
            synchronized (factories[i]) {
              touch.invoke(factories[i], new Object[] {Long.valueOf(System.nanoTime())});
            }
          }
        }
        Thread.sleep(PAUSE_MS);
      }
    } catch (Exception error) {
      System.err.println("Python workers without a task end after a minute, with the state they hold: " + error);
    }
  }

  private static boolean isHeld(Object slot) {
    synchronized (JOBS) {
      for (Iterator jobs = JOBS.values().iterator(); jobs.hasNext();) {
        if (((Set) jobs.next()).contains(slot)) {
          return true;
        }
      }
      return false;
    }
  }

  private boolean isNeeded() {
    synchronized (JOBS) {
      watched = !JOBS.isEmpty();
      return watched;
    }
  }

  private Object[] factories(Field pools) throws Exception {
    ArrayList found = new ArrayList();
    SparkEnv env = SparkEnv.get();
    if (env != null) {
      synchronized (env) {
        scala.collection.Iterator factories =
            ((scala.collection.mutable.HashMap) pools.get(env)).valuesIterator();
        while (factories.hasNext()) {
          found.add(factories.next());
        }
      }
    }
    return found.toArray();
  }
}
