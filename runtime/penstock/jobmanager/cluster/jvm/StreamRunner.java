package penstock;

import java.io.DataInputStream;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.BasePythonRunner;
import org.apache.spark.api.python.ChainedPythonFunctions;
import org.apache.spark.api.python.PythonEvalType;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonRunner;
import org.apache.spark.api.python.PythonWorker;
import scala.None$;
import scala.Option;
import scala.collection.Iterator;

/**
 * A PythonRunner whose input is written by a separate thread.
 *
 * Spark's runner alternates between writing to the Python worker and reading from it, on the task's thread. While no
 * input arrives, it reads none of the worker's output. A stage in the middle of a stream must not wait like that.
 *
 * Spark has a runner with a writer thread, but only for SQL functions. Spark reads the kind of a function twice: on the
 * task's thread to choose the runner, and on the writer's thread for the worker. This class returns the SQL kind only
 * to the first call, so the worker gets the true kind.
 */
public class StreamRunner extends PythonRunner {
  /** Size in bytes at which written data is sent, so that every row is sent. */
  private static final int SMALLEST_ROW = 4;

  private transient volatile Thread deciding;

  public StreamRunner(PythonFunction function) {
    super(Lists.of(new ChainedPythonFunctions(Lists.of(function))), (Option) None$.MODULE$);
  }

  public Iterator compute(Iterator rows, int partition, TaskContext context) {
    this.deciding = Thread.currentThread();
    try {
      return super.compute(rows, partition, context);
    } finally {
      this.deciding = null;
    }
  }

  public Iterator newReaderIterator(
      DataInputStream stream,
      BasePythonRunner.Writer writer,
      long started,
      SparkEnv env,
      PythonWorker worker,
      Option handle,
      AtomicBoolean released,
      TaskContext context) {
    Iterator rows = super.newReaderIterator(stream, writer, started, env, worker, handle, released, context);
    return new DiagnosedRows(rows, handle);
  }

  public boolean pipelinedEnabled() {
    return true;
  }

  public int bufferSize() {
    return SMALLEST_ROW;
  }

  public int evalType() {
    return Thread.currentThread() == this.deciding ? PythonEvalType.SQL_BATCHED_UDF() : PythonEvalType.NON_UDF();
  }
}
