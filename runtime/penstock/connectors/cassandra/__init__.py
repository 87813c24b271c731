"""Cassandra: rows into tables, by Cassandra's own driver (extra `penstock[cassandra]`).

**Guarantees.** Writes are upserts, and each has the time at which the job took the record, which it keeps when it is tried again: whatever comes
late or twice, the newest row of a key stands. That is the order of records of one subtask (`key_by` the primary key); over a restart the clocks of the
machines count.

    written at once       a checkpoint waits until Cassandra has taken everything; after a failure rows are written again, and end up as they should
    write-ahead           rows wait in their checkpoint; when it is complete the JobManager writes them, and notes in Cassandra which was the last one sent.
                          What an attempt that failed had not brought to a checkpoint is never seen

Counters are refused: what is added twice counts twice.

**Options.** `ClusterBuilder` says where and as whom; the table and its columns, or a statement of your own, what; `MapperOptions` consistency, time to live and
what becomes of None; `max_in_flight` how many requests are on their way from each subtask.

**Errors.** A server that does not answer, a wrong password, a keyspace, table or column that is missing and a statement that does not fit are errors before the
job starts. At run time a lost server is tried again for half a minute (`patience`), then the job fails over. A value that does not fit its column is told with
its record before anything is sent; a row that the server refuses, with its record.

**Sizing.** A connection to each node for each subtask, and with the write-ahead log one for the JobManager: all rows go through its one process then.
"""
