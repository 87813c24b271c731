package penstock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedList;
import org.apache.spark.ExceptionFailure;
import org.apache.spark.ExecutorLostFailure;
import org.apache.spark.TaskEndReason;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.StageInfo;

/**
 * The failures of all tasks of a job group. Spark reports only the first failure. If a Python worker dies, this is
 * often the failure of a task that lost its connection to the worker.
 */
public class TaskFailures extends SparkListener {
  private static final int MOST_STAGES = 4096;
  private static final int MOST_FAILURES = 256;
  private static final int LONGEST = 65536;

  private final HashMap placeOfStage = new HashMap();
  private final LinkedList stages = new LinkedList();
  private final LinkedList failures = new LinkedList();

  public synchronized void onJobStart(SparkListenerJobStart start) {
    String group = start.properties() == null ? null : start.properties().getProperty("spark.jobGroup.id");
    ArrayList ids = new ArrayList();
    scala.collection.Iterator infos = start.stageInfos().iterator();
    while (infos.hasNext()) {
      ids.add(Integer.valueOf(((StageInfo) infos.next()).stageId()));
    }
    java.util.Collections.sort(ids);
    for (int level = 0; group != null && level < ids.size(); level++) {
      this.placeOfStage.put(ids.get(level), new Object[] {group, Integer.valueOf(level)});
      this.stages.add(ids.get(level));
    }
    while (this.stages.size() > MOST_STAGES) {
      this.placeOfStage.remove(this.stages.removeFirst());
    }
  }

  public synchronized void onTaskEnd(SparkListenerTaskEnd end) {
    Object[] place = (Object[]) this.placeOfStage.get(Integer.valueOf(end.stageId()));
    TaskEndReason reason = end.reason();
    String told = null;
    if (reason instanceof ExceptionFailure) {
      told = ((ExceptionFailure) reason).description();
    } else if (reason instanceof ExecutorLostFailure) {
      told = ((ExecutorLostFailure) reason).toErrorString();
    }
    if (place != null && told != null) {
      told = told.length() > LONGEST ? told.substring(0, LONGEST) : told;
      this.failures.add(new Object[] {place[0], end.taskInfo().index() + "\n" + place[1] + "\n"
          + end.taskInfo().host() + "\n" + told});
      if (this.failures.size() > MOST_FAILURES) {
        this.failures.removeFirst();
      }
    }
  }

  /**
   * Returns the failures of this group so far. Each has lines: partition, stage (counted from 0 within its job), host,
   * and cause.
   */
  public synchronized String[] of(String group) {
    ArrayList found = new ArrayList();
    for (Iterator all = this.failures.iterator(); all.hasNext();) {
      Object[] failure = (Object[]) all.next();
      if (failure[0].equals(group)) {
        found.add(failure[1]);
      }
    }
    return (String[]) found.toArray(new String[0]);
  }
}
