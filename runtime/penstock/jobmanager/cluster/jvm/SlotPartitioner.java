package penstock;

import org.apache.spark.Partitioner;

/** A row's key is its slot. Knows, too, which executor each slot is meant to run on, and whose rows they are. */
public class SlotPartitioner extends Partitioner {
  private final String[] executors;
  private final String jobId;
  private final int level;

  /** Locations as Spark writes them: "executor_HOST_ID"; empty where any will do. The level is the one that receives. */
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

  /** "JOB LEVEL SLOT" of the task that reads. */
  public String reader(int slot) {
    return this.jobId + " " + this.level + " " + slot;
  }

  /** The same of the task that writes. */
  public String writer(int slot) {
    return this.jobId + " " + (this.level - 1) + " " + slot;
  }

  public boolean runsOn(int slot, String executor) {
    return this.executors[slot].equals(executor);
  }
}
