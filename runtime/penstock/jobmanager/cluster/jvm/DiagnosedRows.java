package penstock;

import io.netty.util.internal.PlatformDependent;
import java.io.IOException;
import org.apache.spark.SparkException;
import org.apache.spark.api.python.PythonWorkerHandle;
import scala.Option;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * The rows of a Python worker, which tell what it died of.
 *
 * A worker that crashes is noticed by who reads from it and by who writes to it. Spark takes what the reader sees and adds
 * the dump of the crash; but where the writer was first, "Broken pipe" is all that it tells.
 */
public class DiagnosedRows extends AbstractIterator {
  /** Spark's words, which penstock/jobmanager/failover/crash.py knows a dead worker by. */
  private static final String DIED = "Python worker exited unexpectedly";
  private static final int LOOKS = 20;
  private static final long LOOK_MS = 50L;

  private final Iterator rows;
  private final Option worker;

  /** worker: the PythonWorkerHandle, if Spark knows it. */
  public DiagnosedRows(Iterator rows, Option worker) {
    this.rows = rows;
    this.worker = worker;
  }

  public boolean hasNext() {
    try {
      return this.rows.hasNext();
    } catch (Throwable failure) {
      PlatformDependent.throwException(this.diagnosed(failure));
      return false;
    }
  }

  public Object next() {
    try {
      return this.rows.next();
    } catch (Throwable failure) {
      PlatformDependent.throwException(this.diagnosed(failure));
      return null;
    }
  }

  /** What to tell instead. A worker that lives has nothing to do with it: what is written to it comes from others. */
  private Throwable diagnosed(Throwable failure) {
    if (!(failure instanceof IOException) || this.worker.isEmpty()) {
      return failure;
    }
    PythonWorkerHandle handle = (PythonWorkerHandle) this.worker.get();
    if (!ends(handle)) {
      return failure;
    }
    Option dump = handle.terminationDiagnostics();
    return new SparkException(dump.isEmpty() ? DIED : DIED + " (crashed): " + dump.get(), failure);
  }

  /** Its socket is closed a moment before it is gone. */
  private static boolean ends(PythonWorkerHandle handle) {
    try {
      for (int look = 0; look < LOOKS && handle.isAlive(); look++) {
        Thread.sleep(LOOK_MS);
      }
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    }
    return !handle.isAlive();
  }
}
