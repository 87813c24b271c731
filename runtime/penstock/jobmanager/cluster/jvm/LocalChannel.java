package penstock;

import java.util.HashMap;
import java.util.Iterator;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.TaskContext;

/**
 * The path of rows between tasks of the same JVM: by reference, into the queue of the reader.
 *
 * Between slots of one executor, the network would cost several times as much as all other work. Rows would be copied,
 * serialized, encrypted and passed between threads, only to return to the same process. The job's placement determines
 * whether a slot is local, and not the tasks that currently run here. All rows of a sender for a slot must take the
 * same path. Otherwise, a row could overtake another.
 *
 * Janino makes private methods static. For this reason, synchronized methods are never private, here and in other
 * classes.
 *
 * The bytes that wait here are limited, as on the network. A sender that has used up its share waits.
 */
public class LocalChannel {
  private static final HashMap READERS = new HashMap();
  /** Minimum share in bytes: two rows of the maximum size, to which larger rows are split. */
  private static final long LEAST_SHARE = 65536L;
  private static final long LOOK_MS = 250L;
  /** Maximum wait for the start of the other slot's task. Later means that it runs elsewhere, against the placement. */
  private static final long PATIENCE_NS = TimeUnit.SECONDS.toNanos(60L);
  private static final long GRACE_NS = TimeUnit.SECONDS.toNanos(2L);

  private final LinkedBlockingQueue queue;
  private final int sender;
  private final long share;
  private long waiting = 0L;
  private boolean closed = false;

  private LocalChannel(LinkedBlockingQueue queue, int sender, long share) {
    this.queue = queue;
    this.sender = sender;
    this.share = share;
  }

  private static String name(int shuffle, int slot) {
    return shuffle + "-" + slot;
  }

  /** Creates the channels of a reader that begins, one for each sender. */
  public static LocalChannel[] open(int shuffle, int slot, LinkedBlockingQueue queue, int senders, long bytes) {
    LocalChannel[] channels = new LocalChannel[senders];
    for (int i = 0; i < senders; i++) {
      channels[i] = new LocalChannel(queue, i, Math.max(bytes / senders, LEAST_SHARE));
    }
    register(name(shuffle, slot), channels);
    return channels;
  }

  private static synchronized void register(String name, LocalChannel[] channels) {
    READERS.put(name, channels);
    LocalChannel.class.notifyAll();
  }

  private static synchronized void forget(String name) {
    READERS.remove(name);
  }

  /** Closes the channels of a reader that has ended, with or without success. */
  public static void close(int shuffle, int slot, LocalChannel[] channels, LinkedBlockingQueue queue) {
    forget(name(shuffle, slot));
    for (int i = 0; i < channels.length; i++) {
      channels[i].close();
    }
    // Spark releases the remaining items and assumes that all of them are its own.
    Iterator left = queue.iterator();
    while (left.hasNext()) {
      if (left.next() instanceof Row) {
        left.remove();
      }
    }
  }

  /** Returns the channel to the reader of a slot. Waits until the reader has started. */
  public static synchronized LocalChannel to(int shuffle, int slot, TaskContext context) throws Exception {
    long deadline = System.nanoTime() + PATIENCE_NS;
    LocalChannel[] channels = (LocalChannel[]) READERS.get(name(shuffle, slot));
    while (channels == null) {
      check(context);
      if (System.nanoTime() > deadline) {
        throw new TimeoutException("the task of slot " + slot + " has not begun in the executor that holds the slot");
      }
      LocalChannel.class.wait(LOOK_MS);
      channels = (LocalChannel[]) READERS.get(name(shuffle, slot));
    }
    return channels[context.partitionId()];
  }

  /**
   * Waits until the share has room, and puts the row into the queue. A reader that has ended has cleared its queue, so
   * no row may enter this queue.
   */
  public synchronized void send(byte[] row, TaskContext context) throws Exception {
    while (this.waiting > 0L && this.waiting + row.length > this.share && !this.closed) {
      check(context);
      this.wait(LOOK_MS);
    }
    if (this.closed) {
      // Wait, so that the other task reports the cause of its end first. If this task failed first, Spark would kill
      // the other task, and a killed task reports no cause.
      long deadline = System.nanoTime() + GRACE_NS;
      while (System.nanoTime() < deadline) {
        check(context);
        this.wait(LOOK_MS);
      }
      throw new IllegalStateException("the task of the receiving slot has ended");
    }
    this.waiting += row.length;
    this.queue.put(new Row(this, row));
  }

  private static void check(TaskContext context) {
    context.killTaskIfInterrupted();
    if (context.getTaskFailure().isDefined()) {
      throw new RuntimeException("the task has failed", (Throwable) context.getTaskFailure().get());
    }
  }

  /** Returns the bytes of rows that the reader has not taken. */
  synchronized long waiting() {
    return this.waiting;
  }

  /** Returns the maximum of the waiting bytes. */
  long share() {
    return this.share;
  }

  synchronized void taken(int bytes) {
    this.waiting -= bytes;
    this.notifyAll();
  }

  synchronized void close() {
    this.closed = true;
    this.notifyAll();
  }

  /** A row in the queue. */
  public static class Row {
    public final int sender;
    private final LocalChannel channel;
    private final byte[] bytes;

    Row(LocalChannel channel, byte[] bytes) {
      this.sender = channel.sender;
      this.channel = channel;
      this.bytes = bytes;
    }

    /** Takes the row and frees its part of the sender's share. */
    public byte[] take() {
      this.channel.taken(this.bytes.length);
      return this.bytes;
    }
  }
}
