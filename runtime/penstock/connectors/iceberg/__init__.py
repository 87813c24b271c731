"""Iceberg: tables of a catalog as sink and source, without Spark and without a JVM (extra `penstock-streaming[iceberg]`).

**Guarantees.** `IcebergSink` adds the rows of each checkpoint to the table in one snapshot, exactly once. If the sink
has a key, the rows replace the table's rows of the same key. The snapshot's summary names the sink and the checkpoint.
The same commit sets a property of the table, which remains when snapshots expire. The committer reads summary and
property before it retries a commit (`lakehouse.commits`). `IcebergSource` reads one snapshot, or also follows later snapshots that
append rows. Its positions are in the job's checkpoints.

**Options.** A catalog is a dict of the properties that `pyiceberg.catalog.load_catalog` takes:
`{"name": "lake", "type": "sql", "uri": …, "warehouse": …}`. If a key ends in `.file` (`"uri.file"`, `"credential.file"`), its value is
the name of a file that contains the property. The file is read each time the catalog is opened. The job's object store settings supply
missing `s3.…` options.

**Errors.** The sink and the source check the catalog, the table and its columns before the job starts. They raise `SinkError`,
`SourceError` or `InvalidJob`.

**Sizing.** The sizes are the same as for Delta Lake (`connectors.delta`). Each checkpoint creates a snapshot. So expire old
snapshots and compact small files, as for any table with streaming writes. The removal of orphan files also removes the files of failed
subtasks.
"""
