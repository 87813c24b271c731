"""Cassandra as a sink: rows into tables, with Cassandra's own driver (extra `penstock-streaming[cassandra]`).

**Guarantees.** Writes are upserts. Each write has the time at which the job took the record, and a retry keeps this
time. Even if writes arrive late or twice, the newest row of a key wins. "Newest" follows the order of records within
one subtask (`key_by` the primary key). After a restart, the order depends on the machines' clocks.

    direct            a checkpoint waits until Cassandra has accepted all rows. After a failure the job writes rows again, with the
                      same result
    write-ahead       the checkpoint stores the rows. When the checkpoint is complete, the JobManager writes the rows, and
                      notes in Cassandra which checkpoint it sent last. Rows of a failed attempt that no checkpoint
                      contains are never visible

The sink refuses counters, because a repeated increment counts twice.

**Options.** `ClusterBuilder` has the hosts and the user. The sink takes a table with columns, or a statement. `MapperOptions` has the
consistency level, the time to live and the handling of None. `max_in_flight` limits the concurrent requests of each subtask.

**Errors.** Before the job starts, the sink reports an unreachable server, a wrong password, or a missing keyspace, table or
column. It also reports a statement that does not fit its table. At run time the sink retries a lost server for half a minute
(`patience`), then the job fails over. If a value does not fit its column, the error names the record before anything is
sent. If the server rejects a row, the error names the record of the row.

**Sizing.** Each subtask has a connection to each node. The write-ahead log adds one connection of the JobManager, whose process
then sends all rows.
"""
