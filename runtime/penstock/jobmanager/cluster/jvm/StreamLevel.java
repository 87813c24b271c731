package penstock;

import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonRDD;
import org.apache.spark.rdd.RDD;
import scala.collection.Iterator;
import scala.reflect.ClassTag$;

/** A level of the pipelined runner: a PythonRDD that reads its input and its worker's output at the same time. */
public class StreamLevel extends PythonRDD {
  private final PythonFunction function;

  public StreamLevel(RDD prev, PythonFunction function) {
    super(prev, function, true, false);
    this.function = function;
  }

  public Iterator compute(Partition split, TaskContext context) {
    Readings.listen();
    Iterator rows = this.firstParent(ClassTag$.MODULE$.apply(byte[].class)).iterator(split, context);
    return new StreamRunner(this.function).compute(rows, split.index(), context);
  }
}
