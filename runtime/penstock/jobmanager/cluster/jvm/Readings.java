package penstock;

import java.lang.management.BufferPoolMXBean;
import java.lang.management.ClassLoadingMXBean;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryUsage;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.Iterator;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkEnv;

/**
 * The metrics of this JVM: memory, garbage collection, threads, CPU time, and the buffers of exchanges. Values are
 * computed only on request. The driver's metrics are requested over its gateway. An executor has a socket in its
 * working directory, and its parent process connects to this socket. A thread that waits in accept costs nothing.
 *
 * Each metric has a line. A value is "NAME VALUE", with Flink's names. The input of a task is "in JOB LEVEL SLOT ROWS
 * BYTES MOST". Its output is "out JOB LEVEL SLOT BYTES MOST".
 */
public class Readings extends Thread {
  public static final String SOCKET = "readings";
  private static final long PAUSE_MS = 1000L;
  private static final ConcurrentHashMap EXCHANGES = new ConcurrentHashMap();
  private static boolean listening = false;

  private final ServerSocketChannel server;

  private Readings(ServerSocketChannel server) {
    super("penstock-readings");
    this.setDaemon(true);
    this.server = server;
  }

  /** Constructor for Python, which needs an instance to call `text`. */
  public Readings() {
    this(null);
  }

  /** One end of an exchange in a running task. */
  public interface End {
    /** Returns the line of this end, without a line break. */
    String reading();
  }

  public static void begins(End end) {
    EXCHANGES.put(end, end);
  }

  public static void ends(End end) {
    EXCHANGES.remove(end);
  }

  /** Starts the socket of an executor with its first task. Later calls do nothing. */
  public static synchronized void listen() {
    if (listening) {
      return;
    }
    listening = true;
    if ("driver".equals(SparkEnv.get().executorId())) {
      return;
    }
    try {
      ServerSocketChannel server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
      server.bind(UnixDomainSocketAddress.of(SOCKET));
      new Readings(server).start();
    } catch (Exception error) {
      System.err.println("this executor's memory, threads and exchanges are not seen: " + error);
    }
  }

  public void run() {
    while (true) {
      try {
        this.answer(this.server.accept());
      } catch (Exception error) {
        try {
          Thread.sleep(PAUSE_MS);
        } catch (InterruptedException interrupted) {
          return;
        }
      }
    }
  }

  private void answer(SocketChannel asking) throws Exception {
    try {
      ByteBuffer text = ByteBuffer.wrap(this.text().getBytes("UTF-8"));
      while (text.hasRemaining()) {
        asking.write(text);
      }
    } finally {
      asking.close();
    }
  }

  public String text() {
    StringBuilder lines = new StringBuilder();
    memory(lines, "Heap", ManagementFactory.getMemoryMXBean().getHeapMemoryUsage());
    memory(lines, "NonHeap", ManagementFactory.getMemoryMXBean().getNonHeapMemoryUsage());
    Iterator spaces = ManagementFactory.getMemoryPoolMXBeans().iterator();
    while (spaces.hasNext()) {
      MemoryPoolMXBean space = (MemoryPoolMXBean) spaces.next();
      if ("Metaspace".equals(space.getName())) {
        memory(lines, "Metaspace", space.getUsage());
      }
    }
    Iterator pools = ManagementFactory.getPlatformMXBeans(BufferPoolMXBean.class).iterator();
    while (pools.hasNext()) {
      BufferPoolMXBean pool = (BufferPoolMXBean) pools.next();
      String name = "direct".equals(pool.getName()) ? "Direct" : "mapped".equals(pool.getName()) ? "Mapped" : null;
      if (name != null) {
        line(lines, "Memory." + name + ".Count", pool.getCount());
        line(lines, "Memory." + name + ".MemoryUsed", pool.getMemoryUsed());
        line(lines, "Memory." + name + ".TotalCapacity", pool.getTotalCapacity());
      }
    }
    long count = 0L;
    long time = 0L;
    Iterator collectors = ManagementFactory.getGarbageCollectorMXBeans().iterator();
    while (collectors.hasNext()) {
      GarbageCollectorMXBean collector = (GarbageCollectorMXBean) collectors.next();
      String name = "GarbageCollector." + collector.getName().replace(' ', '_');
      line(lines, name + ".Count", collector.getCollectionCount());
      line(lines, name + ".Time", collector.getCollectionTime());
      count += Math.max(0L, collector.getCollectionCount());
      time += Math.max(0L, collector.getCollectionTime());
    }
    line(lines, "GarbageCollector.All.Count", count);
    line(lines, "GarbageCollector.All.Time", time);
    line(lines, "Threads.Count", (long) ManagementFactory.getThreadMXBean().getThreadCount());
    ClassLoadingMXBean classes = ManagementFactory.getClassLoadingMXBean();
    line(lines, "ClassLoader.ClassesLoaded", classes.getTotalLoadedClassCount());
    line(lines, "ClassLoader.ClassesUnloaded", classes.getUnloadedClassCount());
    com.sun.management.OperatingSystemMXBean system =
        (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    line(lines, "CPU.Time", system.getProcessCpuTime());
    lines.append("Status.JVM.CPU.Load ").append(system.getProcessCpuLoad()).append('\n');
    Iterator ends = EXCHANGES.keySet().iterator();
    while (ends.hasNext()) {
      lines.append(((End) ends.next()).reading()).append('\n');
    }
    return lines.toString();
  }

  private static void memory(StringBuilder lines, String name, MemoryUsage usage) {
    line(lines, "Memory." + name + ".Used", usage.getUsed());
    line(lines, "Memory." + name + ".Committed", usage.getCommitted());
    line(lines, "Memory." + name + ".Max", usage.getMax());
  }

  private static void line(StringBuilder lines, String name, long value) {
    lines.append("Status.JVM.").append(name).append(' ').append(value).append('\n');
  }
}
