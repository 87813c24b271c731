"""Sinks and sources for databases, with SQLAlchemy: MySQL, MariaDB, SQLite and Postgres.

Install the extra `penstock-streaming[sql]` and a driver, such as `penstock-streaming[mysql]`.

**Guarantees.** The `DeliveryGuarantee` of `SqlSink` decides who writes the rows:

    EXACTLY_ONCE    The checkpoint contains the rows. The JobManager writes them in one transaction, together with the checkpoint's
                    id in a small table, `penstock_commits`. The transaction first takes a lock and reads that table, so no
                    checkpoint is written twice (`commits`, `committer`).
    AT_LEAST_ONCE   The subtasks write. A checkpoint completes only after the server has accepted all rows before it. If the sink
                    has a `key`, rows are upserted, so a repeated write changes nothing.

`JdbcSink` (`jdbc`) has PyFlink's name. It executes the user's statement, at least once.
`SqlSource` reads ranges of a key, or follows a key that grows. The position of a split is the last key that it has read.
`SqlLookup` queries rows asynchronously.

**Options.** `url` is an SQLAlchemy URL ("mysql+pymysql://user@host/db", "sqlite:////data/file.db"). The driver receives the
parameters after `?`, such as `ssl_ca` and `read_timeout`. `password_file` names a file with the password. It is read at every connection.

**Errors.** Before the job starts, the connector checks the following. Each error has a remedy:

- the server responds and accepts the password,
- the table, its key and the user's rights exist,
- the job's fields fit the table.

While the job runs, the connector retries for 30 s if the server is lost. Then the job fails over. If the server refuses a row, the job
fails. The error contains the server's message and the row.

**Sizing.** Each subtask uses one connection, and the JobManager one more. For exactly once, the subtasks keep the rows between two
checkpoints in memory as columns. The JobManager writes about ten thousand rows per second.
"""
