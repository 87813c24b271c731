package penstock;

import org.apache.spark.Partition;
import org.apache.spark.Partitioner;
import org.apache.spark.PipelinedShuffleDependency;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.rdd.ShuffledRDDPartition;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.streaming.StreamingShuffleReader;
import scala.None$;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * The exchange between two levels. Rows (slot, bytes) go to the partition of their slot. The partition of slot i runs
 * on the executor that holds the state of slot i. Spark's ShuffledRDD can only select the host, not the executor.
 */
public class SlotExchange extends RDD {
  private final Partitioner partitioner;
  private final String[] locations;
  private final boolean pipelined;
  private transient RDD prev;

  public SlotExchange(RDD prev, Partitioner partitioner, String[] locations, boolean pipelined) {
    super(prev.context(), Lists.empty(), ClassTag$.MODULE$.apply(byte[].class));
    this.prev = prev;
    this.partitioner = partitioner;
    this.locations = locations;
    this.pipelined = pipelined;
  }

  public Seq getDependencies() {
    ClassTag any = ClassTag$.MODULE$.Any();
    Object dependency;
    if (this.pipelined) {
      dependency = new PipelinedShuffleDependency(
          this.prev, this.partitioner, SparkEnv.get().serializer(), None$.MODULE$, None$.MODULE$, false,
          PipelinedShuffleDependency.$lessinit$greater$default$7(),
          PipelinedShuffleDependency.$lessinit$greater$default$8(), any, any, any);
    } else {
      dependency = new ShuffleDependency(
          this.prev, this.partitioner, SparkEnv.get().serializer(), None$.MODULE$, None$.MODULE$, false,
          ShuffleDependency.$lessinit$greater$default$7(), any, any, any);
    }
    return Lists.of(dependency);
  }

  public ShuffleDependency shuffle() {
    return (ShuffleDependency) this.dependencies().head();
  }

  public Partition[] getPartitions() {
    Partition[] partitions = new Partition[this.locations.length];
    for (int i = 0; i < partitions.length; i++) {
      partitions[i] = new ShuffledRDDPartition(i);
    }
    return partitions;
  }

  public Seq getPreferredLocations(Partition split) {
    String location = this.locations[split.index()];
    return location.length() == 0 ? Lists.empty() : Lists.of(location);
  }

  public Iterator compute(Partition split, TaskContext context) {
    ShuffleDependency shuffle = this.shuffle();
    ShuffleReader reader = SparkEnv.get().shuffleManagerFor(shuffle).getReader(
        shuffle.shuffleHandle(), split.index(), split.index() + 1, context,
        (ShuffleReadMetricsReporter) context.taskMetrics().createTempShuffleReadMetrics());
    if (this.pipelined) {
      Readings.listen();
      boolean checked = SparkEnv.get().conf().getBoolean("spark.shuffle.streaming.checksum.enabled", true);
      long bytes = SparkEnv.get().conf().getSizeAsBytes("spark.shuffle.streaming.readerMaxMemory");
      return new AlignedRows(
          (StreamingShuffleReader) reader, shuffle.serializer().newInstance(), checked, shuffle.shuffleId(),
          split.index(), this.locations.length, bytes, ((SlotPartitioner) this.partitioner).reader(split.index()));
    }
    return new Values(reader.read());
  }
}
