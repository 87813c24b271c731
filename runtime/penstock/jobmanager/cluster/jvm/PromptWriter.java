package penstock;

import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.streaming.StreamingShuffleWriter;
import scala.Option;
import scala.Product2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * Spark's streaming writer, which sends every row at once.
 *
 * Spark collects rows in a buffer for each target and has a thread that looks, every few milliseconds and for as long as the
 * task runs, which of the buffers are old enough to go. Here a row is a buffer already, that a task has held back for as long as
 * it may (taskmanager/stream_task.py): to hold it back once more costs latency, and to look for it costs a job that has
 * nothing to do more than all else. So the thread sleeps (spark.shuffle.streaming.networkBufferMaxWaitTimeMs), and a row goes
 * when it is written: when the next one is asked for.
 */
public class PromptWriter extends ShuffleWriter {
  private final StreamingShuffleWriter writer;

  public PromptWriter(StreamingShuffleWriter writer) {
    this.writer = writer;
  }

  public void write(Iterator rows) {
    this.writer.write(new Sending(rows, this.writer));
  }

  public Option stop(boolean success) {
    return this.writer.stop(success);
  }

  public long[] getPartitionLengths() {
    return this.writer.getPartitionLengths();
  }

  /** Rows by the slot they are for. */
  private static class Sending extends AbstractIterator {
    private final Iterator rows;
    private final StreamingShuffleWriter writer;
    private int written = -1;

    Sending(Iterator rows, StreamingShuffleWriter writer) {
      this.rows = rows;
      this.writer = writer;
    }

    public boolean hasNext() {
      if (this.written >= 0) {
        this.writer.shards()[this.written].send();
        this.written = -1;
      }
      return this.rows.hasNext();
    }

    public Object next() {
      Product2 row = (Product2) this.rows.next();
      this.written = ((Number) row._1()).intValue();
      return row;
    }
  }
}
