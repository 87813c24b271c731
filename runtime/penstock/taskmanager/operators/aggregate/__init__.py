"""Running combinations per key: reduce, aggregates of fields, row by row and in columns."""
