package penstock;

import java.nio.ByteBuffer;
import org.apache.spark.ContextCleaner;
import org.apache.spark.SparkContext;
import org.apache.spark.api.python.PairwiseRDD;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.rdd.AsyncRDDActions;
import org.apache.spark.rdd.RDD;
import scala.Tuple2;
import scala.collection.immutable.$colon$colon;
import scala.collection.immutable.List;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * One epoch of the batched runner, or one attempt of the pipelined runner, as one Spark job. One call from Python runs
 * it. The job is a sequence of stages, one per level: commands -> level 0 -> exchange -> level 1 -> ... -> acks. Byte
 * arrays cross the gateway as one block of length-prefixed items.
 */
public class Epoch {
  /** Runs the Spark job and returns the rows that the last level emitted, length-prefixed. */
  public byte[] run(
      SparkContext context, byte[] commands, String[] locations, String[] slots, PythonFunction[] levels, String jobId,
      boolean pipelined, String group) {
    List placed = Lists.empty();
    byte[][] items = split(commands, locations.length);
    for (int i = locations.length - 1; i >= 0; i--) {
      Object preferred = locations[i].length() == 0 ? Lists.empty() : Lists.of(locations[i]);
      placed = new $colon$colon(new Tuple2(items[i], preferred), placed);
    }
    SlotExchange[] exchanges = new SlotExchange[levels.length - 1];
    context.setJobGroup(group, group, false);
    RDD rows = level(context.makeRDD(placed, ClassTag$.MODULE$.apply(byte[].class)), levels[0], jobId, slots, pipelined);
    for (int i = 1; i < levels.length; i++) {
      SlotPartitioner partitioner = new SlotPartitioner(locations, jobId, i);
      exchanges[i - 1] = new SlotExchange(new PairwiseRDD(rows), partitioner, locations, pipelined);
      rows = level(exchanges[i - 1], levels[i], jobId, slots, pipelined);
    }
    try {
      return join((byte[][]) rows.collect());
    } finally {
      forget(context, exchanges);
    }
  }

  /** Allows the executors at these locations to end the job's Python workers. The call does not wait. */
  public void release(SparkContext context, String[] locations, String jobId) {
    List placed = Lists.empty();
    for (int i = 0; i < locations.length; i++) {
      placed = new $colon$colon(new Tuple2(new byte[0], Lists.of(locations[i])), placed);
    }
    ClassTag bytes = ClassTag$.MODULE$.apply(byte[].class);
    context.setJobGroup(jobId + "-release", jobId + "-release", false);
    new AsyncRDDActions(new WorkerRelease(context.makeRDD(placed, bytes), jobId), bytes).countAsync();
  }

  private static RDD level(RDD input, PythonFunction function, String jobId, String[] slots, boolean pipelined) {
    return pipelined ? new StreamLevel(input, function) : new BatchLevel(input, function, jobId, slots);
  }

  /** Deletes the job's shuffle files now. The garbage collector would delete them minutes later. */
  private static void forget(SparkContext context, SlotExchange[] exchanges) {
    if (context.cleaner().isDefined()) {
      ContextCleaner cleaner = (ContextCleaner) context.cleaner().get();
      for (int i = 0; i < exchanges.length; i++) {
        cleaner.doCleanupShuffle(exchanges[i].shuffle().shuffleId(), false);
      }
    }
  }

  private static byte[][] split(byte[] block, int count) {
    ByteBuffer in = ByteBuffer.wrap(block);
    byte[][] items = new byte[count][];
    for (int i = 0; i < count; i++) {
      items[i] = new byte[in.getInt()];
      in.get(items[i]);
    }
    return items;
  }

  private static byte[] join(byte[][] items) {
    int size = 0;
    for (int i = 0; i < items.length; i++) {
      size += 4 + items[i].length;
    }
    ByteBuffer out = ByteBuffer.allocate(size);
    for (int i = 0; i < items.length; i++) {
      out.putInt(items[i].length);
      out.put(items[i]);
    }
    return out.array();
  }
}
