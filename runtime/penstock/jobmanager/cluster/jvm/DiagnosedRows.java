package penstock;

import io.netty.util.internal.PlatformDependent;
import java.io.IOException;
import org.apache.spark.SparkException;
import org.apache.spark.api.python.PythonWorkerHandle;
import scala.Option;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * The rows of a Python worker. If the worker dies, the error contains the cause of its death.
 *
 * Both the reader and the writer of a worker notice its crash. Spark adds the dump of the crash to the reader's error.
 * If the writer notices it first, Spark reports only "Broken pipe".
 */
public class DiagnosedRows extends AbstractIterator {
  /** Spark's message, by which penstock/jobmanager/failover/crash.py recognizes a dead worker. */
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

  /**
   * Returns the error to report. If the worker is alive, the error has another source: other tasks produce the worker's
   * input.
   */
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

  /** Waits for the end of the worker, whose socket closes a moment before it ends. */
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
