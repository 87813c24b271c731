"""Formats for changes of tables in JSON, as Debezium, Canal and Maxwell write them to topics and files. Records are `Row`s with a `RowKind`."""
