package penstock;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufInputStream;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.spark.TaskContext;
import org.apache.spark.network.shuffle.streaming.DataMessage;
import org.apache.spark.network.shuffle.streaming.ShuffleChecksum;
import org.apache.spark.network.shuffle.streaming.StreamingShuffleMessage;
import org.apache.spark.network.shuffle.streaming.TerminationControlMessage;
import org.apache.spark.serializer.SerializerInstance;
import org.apache.spark.shuffle.streaming.StreamingShuffleReader;
import org.apache.spark.util.TaskCompletionListener;
import scala.Product2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * The rows of a pipelined exchange for one task, aligned on markers. This class replaces StreamingShuffleReader.read
 * and takes rows from the same queue. Tasks of the same executor put their rows into this queue directly
 * (LocalChannel).
 *
 * After a sender's marker, rows of the next epoch arrive. The task must not see these rows before the markers of all
 * senders have arrived (see taskmanager/stream_task.py). The rows stay in the network buffers that Spark counts. If a
 * sender has used up its share of the reader's memory, Spark stops reading from this sender. The sender's buffers fill,
 * and the sender waits. So the share limits the memory of an alignment, regardless of its duration.
 */
public class AlignedRows extends AbstractIterator implements TaskCompletionListener, Readings.End {
  private static final byte MARKER = 3;
  private static final byte SEGMENT = 5;
  /** Flags of the last segment of a marker. */
  private static final byte END_OF_MARKER = 3;
  /** Interval of checks for a failure of the task elsewhere. A killed task is interrupted. */
  private static final long POLL_MS = 250L;

  private final StreamingShuffleReader reader;
  private final SerializerInstance serializer;
  private final boolean checked;
  private final ShuffleChecksum checksum = new ShuffleChecksum();
  private final LinkedBlockingQueue queue;
  private final int shuffle;
  private final int slot;
  private final LocalChannel[] local;
  private final String name;
  private final boolean[] aligned;
  private final boolean[] ended;
  /** For each sender: the rest of the message with its marker, and the messages after it, in order. */
  private final ArrayDeque[] held;
  /** Messages that were held until the last alignment and are not yet processed, in order for each sender. */
  private final ArrayDeque ready = new ArrayDeque();
  private Rows rows = null;
  private byte[] next = null;
  private volatile boolean finished = false;
  /** Counters of messages that are held or ready. Only the reader's thread changes them. */
  private volatile long heldBytes = 0L;
  private volatile int heldRows = 0;

  public AlignedRows(
      StreamingShuffleReader reader, SerializerInstance serializer, boolean checked, int shuffle, int slot, int senders,
      long bytes, String name) {
    this.reader = reader;
    this.serializer = serializer;
    this.checked = checked;
    this.queue = reader.messageQueue();
    this.aligned = new boolean[senders];
    this.ended = new boolean[senders];
    this.held = new ArrayDeque[senders];
    for (int i = 0; i < senders; i++) {
      this.held[i] = new ArrayDeque();
    }
    this.shuffle = shuffle;
    this.slot = slot;
    this.name = name;
    this.local = LocalChannel.open(shuffle, slot, this.queue, senders, bytes);
    reader.context().addTaskCompletionListener((TaskCompletionListener) this);
    Readings.begins(this);
  }

  public boolean hasNext() {
    while (this.next == null && !this.finished) {
      this.advance();
    }
    return this.next != null;
  }

  public Object next() {
    this.hasNext();
    byte[] row = this.next;
    this.next = null;
    return row;
  }

  /**
   * Sets `next` or `finished`, or neither. The method is not private: Janino makes private methods static, and then all
   * readers of the process would share one lock.
   */
  synchronized void advance() {
    if (this.rows != null) {
      this.next = (byte[]) this.rows.left.pollFirst();
      if (this.next == null) {
        this.rows = null;
      } else if (endsEpoch(this.next)) {
        this.held[this.rows.sender].addFirst(this.rows);
        this.countHeld(this.rows, 1);
        int sender = this.rows.sender;
        this.rows = null;
        this.align(sender);
      }
    } else {
      this.take();
    }
  }

  private static boolean endsEpoch(byte[] row) {
    return row[0] == MARKER || (row[0] == SEGMENT && row[1] == END_OF_MARKER);
  }

  private void align(int sender) {
    this.aligned[sender] = true;
    if (all(this.aligned)) {
      Arrays.fill(this.aligned, false);
      // The messages that are ready already arrived after the messages that are held.
      ArrayDeque later = new ArrayDeque(this.ready);
      this.ready.clear();
      for (int i = 0; i < this.held.length; i++) {
        this.ready.addAll(this.held[i]);
        this.held[i].clear();
      }
      this.ready.addAll(later);
    }
  }

  private void take() {
    this.checkFailure();
    Object item = this.ready.pollFirst();
    if (item == null) {
      item = this.poll();
    } else {
      this.countHeld(item, -1);
    }
    if (item == null) {
      return;
    }
    int sender = senderOf(item);
    if (this.aligned[sender]) {
      this.held[sender].addLast(item);
      this.countHeld(item, 1);
    } else if (item instanceof LocalChannel.Row) {
      this.next = ((LocalChannel.Row) item).take();
      if (endsEpoch(this.next)) {
        this.align(sender);
      }
    } else if (item instanceof Rows) {
      this.rows = (Rows) item;
    } else if (item instanceof DataMessage) {
      this.rows = this.read((DataMessage) item);
    } else {
      this.ended[sender] = true;
      if (all(this.ended)) {
        this.awaitAcks();
        this.finished = true;
      }
    }
  }

  private void countHeld(Object item, int sign) {
    this.heldRows += sign;
    this.heldBytes += sign * sizeOf(item);
  }

  /** Size of a message from the network. Rows of this process are counted where they enter the queue. */
  private static long sizeOf(Object item) {
    return item instanceof DataMessage ? ((DataMessage) item).data.readableBytes() : 0L;
  }

  /** Called by another thread, while the queue changes. */
  public String reading() {
    long bytes = this.heldBytes;
    int rows = this.heldRows;
    java.util.Iterator waiting = this.queue.iterator();
    while (waiting.hasNext()) {
      bytes += sizeOf(waiting.next());
      rows++;
    }
    long most = 0L;
    for (int i = 0; i < this.local.length; i++) {
      bytes += this.local[i].waiting();
      most += this.local[i].share();
    }
    return "in " + this.name + " " + rows + " " + bytes + " " + most;
  }

  private Object poll() {
    try {
      return this.queue.poll(POLL_MS, TimeUnit.MILLISECONDS);
    } catch (InterruptedException e) {
      throw new RuntimeException("the task was interrupted", e);
    }
  }

  private Rows read(DataMessage message) {
    try {
      ByteBuf data = message.data;
      if (this.checked) {
        this.checksum.reset();
        this.checksum.updateChecksum(data, data.readerIndex(), data.readableBytes());
        if (this.checksum.getValue() != message.checksum) {
          throw new RuntimeException("a buffer of slot " + message.shuffleWriterId + " was changed on its way");
        }
      }
      Rows found = new Rows(message.shuffleWriterId);
      Iterator pairs =
          this.serializer.deserializeStream(new ByteBufInputStream(message.getRecordData())).asKeyValueIterator();
      while (pairs.hasNext()) {
        found.left.addLast(((Product2) pairs.next())._2());
      }
      return found;
    } finally {
      message.release();
    }
  }

  /**
   * Waits for the acknowledgements of the senders' last messages. The connections must stay open until these
   * acknowledgements are sent.
   */
  private void awaitAcks() {
    while (this.reader.terminationAckControlMessageSet().size() < this.ended.length) {
      this.checkFailure();
      try {
        Thread.sleep(1L);
      } catch (InterruptedException e) {
        throw new RuntimeException("the task was interrupted", e);
      }
    }
  }

  private void checkFailure() {
    TaskContext context = this.reader.context();
    context.killTaskIfInterrupted();
    if (context.getTaskFailure().isDefined()) {
      throw new RuntimeException("the task has failed", (Throwable) context.getTaskFailure().get());
    }
    this.reader.errorNotifier().throwErrorIfExists();
  }

  /** Called by the task's thread. The thread that feeds the Python worker reads the rows. */
  public synchronized void onTaskCompletion(TaskContext context) {
    this.finished = true;
    Readings.ends(this);
    LocalChannel.close(this.shuffle, this.slot, this.local, this.queue);
    for (int i = 0; i < this.held.length; i++) {
      release(this.held[i]);
    }
    release(this.ready);
  }

  private static void release(ArrayDeque items) {
    for (Object item = items.pollFirst(); item != null; item = items.pollFirst()) {
      if (item instanceof StreamingShuffleMessage) {
        ((StreamingShuffleMessage) item).release();
      }
    }
  }

  private static int senderOf(Object item) {
    if (item instanceof DataMessage) {
      return ((DataMessage) item).shuffleWriterId;
    }
    if (item instanceof LocalChannel.Row) {
      return ((LocalChannel.Row) item).sender;
    }
    if (item instanceof Rows) {
      return ((Rows) item).sender;
    }
    return ((TerminationControlMessage) item).shuffleWriterId;
  }

  private static boolean all(boolean[] flags) {
    for (int i = 0; i < flags.length; i++) {
      if (!flags[i]) {
        return false;
      }
    }
    return true;
  }

  /** Rows of one message. */
  private static class Rows {
    final int sender;
    final ArrayDeque left = new ArrayDeque();

    Rows(int sender) {
      this.sender = sender;
    }
  }
}
