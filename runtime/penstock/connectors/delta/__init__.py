"""Delta Lake: tables as sink and source, without Spark and without a JVM (extra `penstock[delta]`).

**Guarantees.** `DeltaSink` adds the rows of each checkpoint to the table in one commit, or with a key has them replace those of their key, exactly once: the commit has a `txn` action with the
sink's name and the checkpoint's id, which Delta itself keeps for as long as the table lives, and which is looked up before a commit is
tried again (`lakehouse.commits`). `DeltaSource` reads a version of the table, or goes on with what is appended to it; its positions
are in the job's checkpoints.

**Options.** Paths are local or URLs; `storage_options` are delta-rs's (`AWS_…`), and for `s3://` what the job's configuration says of object
stores stands for those that are not given.

**Errors.** A table that is missing, is of a kind that cannot be written, or has columns that do not fit is an `InvalidJob` or `SinkError`
before the job starts.

**Sizing.** A sink subtask holds up to 16 MiB of rows for each open file, at most 64 files (partitions) at a time. Each checkpoint makes a file for
each subtask and partition: long intervals, or `OPTIMIZE` now and then, make larger ones. Files of subtasks that died are left
to `VACUUM`.
"""
