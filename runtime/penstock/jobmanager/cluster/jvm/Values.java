package penstock;

import scala.Product2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/** The values of an iterator of pairs. */
public class Values extends AbstractIterator {
  private final Iterator pairs;

  public Values(Iterator pairs) {
    this.pairs = pairs;
  }

  public boolean hasNext() {
    return this.pairs.hasNext();
  }

  public Object next() {
    return ((Product2) this.pairs.next())._2();
  }
}
