"""`JdbcSink` under PyFlink's name: a statement of the user's own with `?` for the fields of each record, at least once.

Records are held until there are as many as a batch has, until the interval is over, and until a checkpoint; each batch is one transaction. A lost
server is tried again as often as `with_max_retries` says, with pauses of 0, 1, 2, … s, as Flink does; a record that the server refuses fails the job at once, with its values.
No JVM and no driver of JDBC's is involved: URLs of JDBC's are read as SQLAlchemy's (`urls`), which are taken as well.
"""
