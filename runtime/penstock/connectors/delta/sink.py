"""`DeltaSink`: rows into a Delta table, one commit for each checkpoint.

DeltaSink("s3://lake/means", {"station": str, "day": datetime.date, "celsius": float}, partition_by=["day"], create=True)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.common.errors import InvalidJob, SinkError
from penstock.connectors.delta.log import DeltaLog
from penstock.connectors.delta.table import (
    check_writable,
    exists,
    location_of,
    open_table,
    package,
    schema_of,
    storage_options_of,
)
from penstock.connectors.delta.target import DeltaTarget
from penstock.connectors.file.sink.part_file import owner_of
from penstock.connectors.file.storage import StorageOptions
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.connectors.lakehouse.commits import TableCommitter, app_of
from penstock.connectors.lakehouse.fields import Fit, fit
from penstock.connectors.lakehouse.files import FILE_BYTES, TableWriter
from penstock.connectors.lakehouse.keys import check_key
from penstock.connectors.lakehouse.upserts import ChangesWriter
from penstock.connectors.sink import Committer, Sink, SinkWriter, WriterContext


class DeltaSink(Sink):
    """
    Args:
        path: of the table: local, or a URL that delta-rs knows.
        fields: what records have (see `formats.shape`); a pyarrow.Schema says types exactly.
        partition_by: the table's partition columns. A table that is there says so itself; given ones must be the same.
        create: make the table if there is none.
        add_columns: fields that the table does not have become columns of it when the job starts.
        key: columns by which a row replaces the one that is there; columns that records do not have stay as they are. Empty: rows are added.
        deletes: records are `Row`s of a table that changes: DELETE removes the row with this key, UPDATE_BEFORE is left out. Rows of one key must
            come to one subtask, in order (`key_by`).
        storage_options: delta-rs's, over what the job's configuration says of object stores.
        file_bytes: a file ends at this size, and at every checkpoint.
    """

    def __init__(
        self,
        path: str,
        fields: Declaration,
        *,
        partition_by: Sequence[str] = (),
        create: bool = False,
        add_columns: bool = False,
        key: Sequence[str] = (),
        deletes: bool = False,
        storage_options: dict[str, str] | None = None,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        package()
        self.path = location_of(path)
        self.shape = RecordShape.of(fields)
        assert self.shape.schema
        self.partition_by = tuple(partition_by)
        self.create = create
        self.add_columns = add_columns
        self.key = check_key(key, self.shape.schema, deletes=deletes)
        self.deletes = deletes
        self.storage_options = dict(storage_options or {})
        self.file_bytes = file_bytes
        self._fsspec_options: StorageOptions = {}
        self._check_partitions(self.shape.schema)

    def _check_partitions(self, schema: pa.Schema) -> None:
        strange = [name for name in self.partition_by if schema.get_field_index(name) < 0]
        if strange or set(self.partition_by) >= set(schema.names):
            raise InvalidJob(
                f"partition_by={list(self.partition_by)} of the fields {', '.join(schema.names)}",
                remedy="name fields of the records, and leave at least one that is none",
            )

    def with_object_store_options(self, options: dict[str, Any]) -> DeltaSink:
        other = DeltaSink(
            self.path,
            self.shape,
            partition_by=self.partition_by,
            create=self.create,
            add_columns=self.add_columns,
            key=self.key,
            deletes=self.deletes,
            storage_options=self.storage_options,
            file_bytes=self.file_bytes,
        )
        other._fsspec_options = dict(options)
        return other

    def _options(self, fsspec_options: StorageOptions) -> dict[str, str]:
        return storage_options_of(self.path, {**fsspec_options, **self._fsspec_options}, self.storage_options)

    def fit_to(self, table: Any, *, adds_columns: bool = False) -> Fit:
        """What is written into the table as it is.

        Raises:
            InvalidJob: the job's fields do not fit, or the table cannot be written by this sink.
        """
        check_writable(table, self.path, changes_rows=bool(self.key))
        partition_by = tuple(table.metadata().partition_columns)
        if self.partition_by and self.partition_by != partition_by:
            raise InvalidJob(
                f"Delta table {self.path!r} is partitioned by {list(partition_by)}, the sink by {list(self.partition_by)}",
                remedy="leave partition_by out, or name the table's columns in their order",
            )
        return fit(self.shape.schema, schema_of(table), self.path, adds_columns=adds_columns)

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        options = self._options(context.object_store_options)
        table = open_table(self.path, options, SinkError)
        schema = self.fit_to(table).schema
        if self.key:
            return ChangesWriter(self, app_of(context.job_id, context.uid), context, schema)
        target = DeltaTarget(
            self.path,
            schema,
            table.metadata().partition_columns,
            {**context.object_store_options, **self._fsspec_options},
        )
        prefix = f"part-{owner_of(context.job_id, context.uid)}-{context.attempt}-{context.subtask}"
        return TableWriter(target, app_of(context.job_id, context.uid), self.shape, prefix, self.file_bytes)

    def create_committer(self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = "") -> Committer:
        """The table is made, and gets its new columns, before any subtask begins to write."""
        options = self._options(object_store_options)
        log = DeltaLog(self, options, {**object_store_options, **self._fsspec_options})
        log.prepare()
        return TableCommitter(log, app_of(job_id, uid), self.key)

    def check_checkpoints(self, interval_ms: int, *, bounded: bool) -> None:
        if not interval_ms and not bounded:
            raise InvalidJob(
                "a Delta table without checkpoints: nothing would ever be committed",
                remedy="env.enable_checkpointing(60_000): every checkpoint becomes a commit of the table",
            )

    def validate(self) -> None:
        """
        Raises:
            InvalidJob: the table cannot be written by this sink, or the fields do not fit.
            SinkError: there is no table, or it cannot be reached.
        """
        options = self._options({})
        if self.create and not exists(self.path, options, SinkError):
            package().Schema.from_arrow(self.shape.schema)
            return
        self.fit_to(open_table(self.path, options, SinkError), adds_columns=self.add_columns)
