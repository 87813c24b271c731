"""Sinks and sources for tables of Postgres, with libpq (extra `penstock-streaming[postgres]`).

**Guarantees.** The `DeliveryGuarantee` of `PostgresSink` decides who writes the rows:

    EXACTLY_ONCE    The checkpoint contains the rows. The JobManager writes them in one transaction, together with the checkpoint's
                    id in a small table, `penstock_commits`. The transaction first takes a lock and reads that table, so no
                    checkpoint is written twice (`committer`).
    AT_LEAST_ONCE   The subtasks write. A checkpoint completes only after the server has accepted all rows before it. If the sink
                    has a `key`, rows are upserted, so a repeated write changes nothing.

`PostgresSource` reads ranges of a key, or follows a key that grows. The position of a split is the last key that it has read.

**Options.** `conninfo` is a connection string of libpq ("postgresql://user@host/db?sslmode=verify-full", "host=… dbname=…").
`password_file` names a file with the password. It is read at every connection.

**Errors.** Before the job starts, the connector checks the following. Each error has a remedy:

- the server responds and accepts the password,
- the table and the user's rights exist,
- the job's fields fit the table.

While the job runs, the connector retries if the server is lost. A row that the server refuses is not retried.

**Sizing.** Each subtask uses one connection, and the JobManager one more. For exactly once, the subtasks keep the rows between two
checkpoints in memory as columns. The JobManager writes tens of thousands of rows per second, not millions.
"""
