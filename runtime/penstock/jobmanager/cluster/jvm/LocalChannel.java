package penstock;

import java.util.HashMap;
import java.util.Iterator;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.TaskContext;

/**
 * The way of rows from a task to one in the same JVM: by reference, into the queue that its reader takes from.
 *
 * Between slots of one executor the network would cost several times as much as all the rest: rows would be copied,
 * serialized, encrypted and handed from thread to thread, to come back to where they were. Whether a slot is near is what
 * the job's placement says, and not who happens to be there already: all rows of a sender for a slot must go one way, or
 * they would overtake each other.
 *
 * Janino makes static methods of private ones: synchronized ones are none of them private, here and elsewhere.
 *
 * What waits here is bounded in bytes, as it is on the network: a sender whose share is used up waits.
 */
public class LocalChannel {
  private static final HashMap READERS = new HashMap();
  /** Of a share, in bytes: two rows of the size that larger ones are cut to. */
  private static final long LEAST_SHARE = 65536L;
  private static final long LOOK_MS = 250L;
  /** For the task of the other slot to begin; after that it runs elsewhere, against what was planned. */
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

  /** One for every sender, of a reader that begins. */
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

  /** Of a reader that has come to its end, well or not. */
  public static void close(int shuffle, int slot, LocalChannel[] channels, LinkedBlockingQueue queue) {
    forget(name(shuffle, slot));
    for (int i = 0; i < channels.length; i++) {
      channels[i].close();
    }
    // Spark releases what is left, and believes that all of it is its own.
    Iterator left = queue.iterator();
    while (left.hasNext()) {
      if (left.next() instanceof Row) {
        left.remove();
      }
    }
  }

  /** To the reader of a slot, as soon as it has begun. */
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

  /** Waits until there is room. Nothing may come into the queue of a reader that has ended and emptied it. */
  public synchronized void send(byte[] row, TaskContext context) throws Exception {
    while (this.waiting > 0L && this.waiting + row.length > this.share && !this.closed) {
      check(context);
      this.wait(LOOK_MS);
    }
    if (this.closed) {
      // What that one ended of is to be told first: a task that is killed because another has failed tells nothing of its own.
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

  /** Bytes of rows that have not been taken. */
  synchronized long waiting() {
    return this.waiting;
  }

  /** The most that may wait. */
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

  /** A row on its way. */
  public static class Row {
    public final int sender;
    private final LocalChannel channel;
    private final byte[] bytes;

    Row(LocalChannel channel, byte[] bytes) {
      this.sender = channel.sender;
      this.channel = channel;
      this.bytes = bytes;
    }

    /** The sender's share is free of it from now on. */
    public byte[] take() {
      this.channel.taken(this.bytes.length);
      return this.bytes;
    }
  }
}
