package penstock;

import scala.collection.immutable.$colon$colon;
import scala.collection.immutable.List;
import scala.collection.immutable.Nil$;

/** Scala lists of no or one element, without Scala's varargs. */
public class Lists {
  public static List empty() {
    return (List) Nil$.MODULE$;
  }

  public static List of(Object element) {
    return new $colon$colon(element, (List) Nil$.MODULE$);
  }
}
