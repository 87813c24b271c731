package penstock;

import org.apache.spark.Partitioner;

/** A row's key is its slot. Knows, too, which executor each slot is meant to run on. */
public class SlotPartitioner extends Partitioner {
  private final String[] executors;

  /** Locations as Spark writes them: "executor_HOST_ID"; empty where any will do. */
  public SlotPartitioner(String[] locations) {
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

  public boolean runsOn(int slot, String executor) {
    return this.executors[slot].equals(executor);
  }
}
