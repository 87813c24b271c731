package penstock;

import java.util.concurrent.Semaphore;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.streaming.StreamingShuffleHandle;
import org.apache.spark.shuffle.streaming.StreamingShuffleWriter;
import scala.Option;
import scala.Product2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * Spark's streaming writer, which sends every row at once, and passes rows for slots of the same executor by reference.
 *
 * Spark collects rows in a buffer for each target. A thread checks every few milliseconds which buffers are old enough
 * to send, as long as the task runs. In Penstock, a row is already a buffer, which a task has delayed as long as it may
 * (taskmanager/stream_task.py). A second delay would add latency, and the checks would dominate the cost of an idle
 * job. So the thread sleeps (spark.shuffle.streaming.networkBufferMaxWaitTimeMs). After Spark has written a row, it
 * requests the next row. This class then sends the written row.
 */
public class PromptWriter extends ShuffleWriter implements Readings.End {
  private final StreamingShuffleHandle handle;
  private final TaskContext context;
  private final StreamingShuffleWriter writer;
  /** Spark's counter of the bytes that may still be written. */
  private final Semaphore room;
  private final int most;

  public PromptWriter(StreamingShuffleHandle handle, TaskContext context, StreamingShuffleWriter writer) {
    this.handle = handle;
    this.context = context;
    this.writer = writer;
    this.room = writer.org$apache$spark$shuffle$streaming$StreamingShuffleWriter$$allocatedBufferBytesSemaphore();
    this.most = this.room.availablePermits();
  }

  public void write(Iterator rows) {
    Readings.begins(this);
    try {
      this.writer.write(new Remote(rows));
    } finally {
      Readings.ends(this);
    }
  }

  public String reading() {
    SlotPartitioner slots = (SlotPartitioner) this.handle.dependency().partitioner();
    String name = slots.writer(this.context.partitionId());
    return "out " + name + " " + (this.most - this.room.availablePermits()) + " " + this.most;
  }

  public Option stop(boolean success) {
    return this.writer.stop(success);
  }

  public long[] getPartitionLengths() {
    return this.writer.getPartitionLengths();
  }

  /** Rows by their target slot, limited to those that need the network. */
  private class Remote extends AbstractIterator {
    private final Iterator rows;
    private final LocalChannel[] channels;
    private final boolean[] isLocal;
    private int written = -1;
    private Product2 next = null;

    Remote(Iterator rows) {
      SlotPartitioner slots = (SlotPartitioner) PromptWriter.this.handle.dependency().partitioner();
      this.rows = rows;
      this.channels = new LocalChannel[slots.numPartitions()];
      this.isLocal = new boolean[slots.numPartitions()];
      for (int i = 0; i < this.isLocal.length; i++) {
        this.isLocal[i] = slots.runsOn(i, SparkEnv.get().executorId());
      }
    }

    public boolean hasNext() {
      if (this.written >= 0) {
        PromptWriter.this.writer.shards()[this.written].send();
        this.written = -1;
      }
      while (this.next == null && this.rows.hasNext()) {
        Product2 row = (Product2) this.rows.next();
        int slot = ((Number) row._1()).intValue();
        if (this.isLocal[slot]) {
          this.hand(slot, (byte[]) row._2());
        } else {
          this.next = row;
        }
      }
      return this.next != null;
    }

    public Object next() {
      this.hasNext();
      Product2 row = this.next;
      this.next = null;
      this.written = ((Number) row._1()).intValue();
      return row;
    }

    private void hand(int slot, byte[] row) {
      try {
        if (this.channels[slot] == null) {
          this.channels[slot] = LocalChannel.to(PromptWriter.this.handle.shuffleId(), slot, PromptWriter.this.context);
        }
        this.channels[slot].send(row, PromptWriter.this.context);
      } catch (RuntimeException error) {
        throw error;
      } catch (Exception error) {
        throw new RuntimeException("a row for slot " + slot + " cannot be handed over", error);
      }
    }
  }
}
