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
 * The rows of a pipelined exchange as one task gets them: aligned on markers. It takes the place of
 * StreamingShuffleReader.read, and empties the same queue, into which tasks of the same executor put rows as they are
 * (LocalChannel).
 *
 * Behind a sender's marker come rows of the next epoch. The task must not see them before the markers of all senders have
 * come (see taskmanager/stream_task.py). They stay in the network's buffers, as Spark counts them: it reads nothing more
 * from a sender whose share of the reader's memory is used up, so the sender's buffers fill, and the sender waits. What an
 * alignment holds is bounded by that share, however long it takes.
 */
public class AlignedRows extends AbstractIterator implements TaskCompletionListener, Readings.End {
  private static final byte MARKER = 3;
  private static final byte SEGMENT = 5;
  /** Flags of the last segment of a marker. */
  private static final byte END_OF_MARKER = 3;
  /** Between two looks whether the task has failed elsewhere; one that is killed is interrupted. */
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
  /** What has come from a sender behind its marker, in order: messages, and the rest of the one with the marker. */
  private final ArrayDeque[] held;
  /** What was held until the last alignment, and has not been looked at since; in order for each sender. */
  private final ArrayDeque ready = new ArrayDeque();
  private Rows rows = null;
  private byte[] next = null;
  private volatile boolean finished = false;
  /** Of messages that are held, or ready again. Counted by the reader's thread alone. */
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

  /** Sets `next` or `finished`, or neither. Not private: Janino would have it wait for all other readers of the process. */
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
      // What is ready came after what was held.
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

  /** Of what came over the network; rows of this process are counted where they come in. */
  private static long sizeOf(Object item) {
    return item instanceof DataMessage ? ((DataMessage) item).data.readableBytes() : 0L;
  }

  /** From another thread: what is in the queue changes meanwhile. */
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

  /** The senders wait for the answers to their last messages: the connections must not be closed before those are sent. */
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

  /** From the task's thread; rows are read by the one that feeds the Python worker. */
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
