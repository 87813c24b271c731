"""Postgres: tables as sink and source, by libpq (extra `penstock[postgres]`).

**Guarantees.** `PostgresSink` promises what its `DeliveryGuarantee` says:

    EXACTLY_ONCE    the rows of a checkpoint wait in it; the JobManager writes them in one transaction, together with the checkpoint's id in a
                    small table of ours, `penstock_commits`, which is looked up first, under a lock (`committer`)
    AT_LEAST_ONCE   subtasks write; a checkpoint waits until the server has taken everything. With a `key` rows are upserted, and what
                    is written again changes nothing

`PostgresSource` reads ranges of a key, or what grows behind one; a split's position is the last key that was read.

**Options.** `conninfo` is libpq's ("postgresql://user@host/db?sslmode=verify-full", "host=… dbname=…"); `password_file` names a file with the password, read at
every connection.

**Errors.** A server that does not answer, a wrong password, a table or right that is missing, and fields that do not fit are errors before the job
starts, each with what to do. At run time a lost server is tried again, a row that the server refuses is not.

**Sizing.** A connection for each subtask, one for the JobManager. Exactly once, the rows between two checkpoints are held by the subtasks as columns, and written by the
JobManager: for tens of thousands of rows a second, not millions.
"""
