"""Databases by SQLAlchemy: tables of MySQL, MariaDB, SQLite and Postgres as sink and source (extra `penstock[sql]`, and a driver: `penstock[mysql]`).

**Guarantees.** `SqlSink` promises what its `DeliveryGuarantee` says:

    EXACTLY_ONCE    the rows of a checkpoint wait in it; the JobManager writes them in one transaction, together with the checkpoint's id in a
                    small table of ours, `penstock_commits`, which is looked up first, under a lock of the transaction (`commits`, `committer`)
    AT_LEAST_ONCE   subtasks write; a checkpoint waits until the server has taken everything. With a `key` rows are upserted, and what
                    is written again changes nothing

`JdbcSink` (`jdbc`), under PyFlink's name, carries out a statement of the user's own, at least once. `SqlSource` reads ranges of a key, or what grows behind one; a split's
position is the last key that was read. `SqlLookup` asks for rows beside the task.

**Options.** `url` is SQLAlchemy's ("mysql+pymysql://user@host/db", "sqlite:////data/file.db"); what stands behind `?` goes to the driver (`ssl_ca`, `read_timeout`).
`password_file` names a file with the password, read at every connection.

**Errors.** A server that does not answer, a wrong password, a table, key or right that is missing, and fields that do not fit are errors before the job
starts, each with what to do. At run time a lost server is tried again for half a minute, then the job fails over; a row that the server refuses fails the job, with the server's
words and the row.

**Sizing.** A connection for each subtask, one for the JobManager. Exactly once, the rows between two checkpoints are held by the subtasks as columns, and written by the
JobManager: for some ten thousand rows a second.
"""
