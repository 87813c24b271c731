"""Delta Lake: tables as sink and source, without Spark and without a JVM (extra `penstock-streaming[delta]`).

**Guarantees.** `DeltaSink` adds the rows of each checkpoint to the table in one commit, exactly once. If the sink has a key, the rows replace the
table's rows of the same key. The commit has a `txn` action with the sink's name and the checkpoint's id. Delta keeps this action for the
table's lifetime. The committer reads the action before it retries a commit (`lakehouse.commits`). `DeltaSource` reads a version of the table, or
follows its appends. Its positions are in the job's checkpoints.

**Options.** Paths are local or URLs. `storage_options` are the options of delta-rs (`AWS_…`). For `s3://`, the job's object store
settings supply the missing options.

**Errors.** The sink and the source check the table and its columns before the job starts. They raise an `InvalidJob`, `SinkError` or
`SourceError` if the table is missing, is not accessible, or has unsuitable columns.

**Sizing.** A sink subtask holds up to 16 MiB of rows for each open file, and at most 64 files (partitions) at a time. Each checkpoint
creates a file for each subtask and partition. Longer intervals or a regular `OPTIMIZE` make larger files. `VACUUM` removes the files of
failed subtasks.
"""
