package penstock;

import org.apache.spark.Partitioner;

/** A partitioner whose keys are slots. It also has the planned executor of each slot, and the job of the rows. */
public class SlotPartitioner extends Partitioner {
  private final String[] executors;
  private final String jobId;
  private final int level;

  /** Locations in Spark's format: "executor_HOST_ID", or empty for any location. The level is the receiving one. */
  public SlotPartitioner(String[] locations, String jobId, int level) {
    this.jobId = jobId;
    this.level = level;
    this.executors = new String[locations.length];
    for (int i = 0; i < locations.length; i++) {
      this.executors[i] = locations[i].substring(locations[i].lastIndexOf('_') + 1);
    }
  }

  public int numPartitions() {
    return this.executors.length;
  }

  public int getPartition(Object key) {
    return ((Number) key).intValue();
  }

  /** Returns "JOB LEVEL SLOT" of the reading task. */
  public String reader(int slot) {
    return this.jobId + " " + this.level + " " + slot;
  }

  /** Returns "JOB LEVEL SLOT" of the writing task. */
  public String writer(int slot) {
    return this.jobId + " " + (this.level - 1) + " " + slot;
  }

  public boolean runsOn(int slot, String executor) {
    return this.executors[slot].equals(executor);
  }
}
