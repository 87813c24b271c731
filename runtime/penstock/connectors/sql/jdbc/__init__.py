"""`JdbcSink` under PyFlink's name: the user's statement, with a `?` for each field of a record, at least once.

The sink writes buffered records when the batch is full, after the interval, and at a checkpoint. Each batch is one transaction.
If the server is lost, the sink retries as often as `with_max_retries` says, with pauses of 0, 1, 2, … s, as Flink does. A record that the
server refuses fails the job at once. The error contains the record's values.

The sink uses no JVM and no JDBC driver. It converts JDBC URLs to SQLAlchemy URLs (`urls`). It also accepts SQLAlchemy URLs.
"""
