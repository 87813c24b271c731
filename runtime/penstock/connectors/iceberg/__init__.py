"""Iceberg: tables of a catalog as sink and source, without Spark and without a JVM (extra `penstock[iceberg]`).

**Guarantees.** `IcebergSink` adds the rows of each checkpoint to the table in one snapshot, or with a key has them replace those of their key, exactly once: the snapshot's summary says which sink and which
checkpoint it is, and the same commit sets a property of the table, which stays when snapshots expire; both are looked up before a
commit is tried again (`lakehouse.commits`). `IcebergSource` reads a snapshot, or goes on with those that append; its positions are in the
job's checkpoints.

**Options.** A catalog is what `pyiceberg.catalog.load_catalog` takes: `{"name": "lake", "type": "sql", "uri": …, "warehouse": …}`. A key that ends in
`.file` (`"uri.file"`, `"credential.file"`) names a file with the value, read whenever the catalog is opened. What the job's configuration says of
object stores stands for `s3.…` options that are not given.

**Errors.** A catalog that does not answer, a table that is missing, or columns that do not fit are a `SinkError`, `SourceError` or `InvalidJob` before
the job starts.

**Sizing.** As Delta Lake's (`connectors.delta`). Each checkpoint makes a snapshot: expire them, and compact small files, as for any table that is
streamed into. Files of subtasks that died are left to the removal of orphan files.
"""
