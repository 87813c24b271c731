"""`IcebergSink`: rows into an Iceberg table, one snapshot for each checkpoint.

lake = {"name": "lake", "type": "sql", "uri": "sqlite:////data/catalog.db", "warehouse": "file:///data/warehouse"}
IcebergSink(lake, "weather.means", {"station": str, "day": datetime.date, "celsius": float}, partition_by=["day"], create=True)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.common.errors import InvalidJob, SinkError
from penstock.connectors.file.sink.part_file import owner_of
from penstock.connectors.file.storage import StorageOptions
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.connectors.iceberg.log import IcebergLog
from penstock.connectors.iceberg.table import check_writable, exists, open_table, package, schema_of
from penstock.connectors.iceberg.target import IcebergTarget
from penstock.connectors.lakehouse.commits import TableCommitter, app_of
from penstock.connectors.lakehouse.fields import Fit, fit
from penstock.connectors.lakehouse.files import FILE_BYTES, TableWriter
from penstock.connectors.lakehouse.keys import check_key
from penstock.connectors.lakehouse.upserts import ChangesWriter
from penstock.connectors.sink import Committer, Sink, SinkWriter, WriterContext


class IcebergSink(Sink):
    """
    Args:
        catalog: see the package.
        table: "namespace.table".
        fields: what records have (see `formats.shape`); a pyarrow.Schema says types exactly.
        partition_by: columns that a table which is made here is partitioned by. A table that is there says so itself, with any transform.
        create: make the table, and its namespace, if there is none.
        add_columns: fields that the table does not have become columns of it when the job starts.
        key: columns by which a row replaces the one that is there; columns that records do not have stay as they are. Empty: rows are added.
        deletes: records are `Row`s of a table that changes: DELETE removes the row with this key, UPDATE_BEFORE is left out. Rows of one key must
            come to one subtask, in order (`key_by`).
        file_bytes: a file ends at this size, and at every checkpoint.
    """

    def __init__(
        self,
        catalog: Mapping[str, str],
        table: str,
        fields: Declaration,
        *,
        partition_by: Sequence[str] = (),
        create: bool = False,
        add_columns: bool = False,
        key: Sequence[str] = (),
        deletes: bool = False,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        package()
        if "." not in table:
            raise InvalidJob(f"Iceberg table {table!r}", remedy="write 'namespace.table'")
        self.catalog = dict(catalog)
        self.table = table
        self.shape = RecordShape.of(fields)
        assert self.shape.schema
        self.partition_by = tuple(partition_by)
        self.create = create
        self.add_columns = add_columns
        self.key = check_key(key, self.shape.schema, deletes=deletes)
        self.deletes = deletes
        self.file_bytes = file_bytes
        self._options: StorageOptions = {}
        strange = [name for name in self.partition_by if self.shape.schema.get_field_index(name) < 0]
        if strange:
            raise InvalidJob(
                f"partition_by={list(self.partition_by)} of the fields {', '.join(self.shape.schema.names)}",
                remedy="name fields of the records",
            )

    def with_object_store_options(self, options: dict[str, Any]) -> IcebergSink:
        other = IcebergSink(
            self.catalog,
            self.table,
            self.shape,
            partition_by=self.partition_by,
            create=self.create,
            add_columns=self.add_columns,
            key=self.key,
            deletes=self.deletes,
            file_bytes=self.file_bytes,
        )
        other._options = dict(options)
        return other

    def options(self, options: StorageOptions) -> StorageOptions:
        return {**options, **self._options}

    def fit_to(self, table: Any, *, adds_columns: bool = False) -> Fit:
        """What is written into the table as it is.

        Raises:
            InvalidJob: the job's fields do not fit, or the table cannot be written by this sink.
        """
        check_writable(table)
        return fit(self.shape.schema, schema_of(table), self.table, adds_columns=adds_columns)

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        table = open_table(self.catalog, self.table, self.options(context.object_store_options), SinkError)
        schema = self.fit_to(table).schema
        if self.key:
            return ChangesWriter(self, app_of(context.job_id, context.uid), context, schema)
        target = IcebergTarget(table, schema)
        prefix = f"part-{owner_of(context.job_id, context.uid)}-{context.attempt}-{context.subtask}"
        return TableWriter(target, app_of(context.job_id, context.uid), self.shape, prefix, self.file_bytes)

    def create_committer(self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = "") -> Committer:
        """The table is made, and gets its new columns, before any subtask begins to write."""
        log = IcebergLog(self, self.options(object_store_options))
        log.prepare()
        return TableCommitter(log, app_of(job_id, uid), self.key)

    def check_checkpoints(self, interval_ms: int, *, bounded: bool) -> None:
        if not interval_ms and not bounded:
            raise InvalidJob(
                "an Iceberg table without checkpoints: nothing would ever be committed",
                remedy="env.enable_checkpointing(60_000): every checkpoint becomes a snapshot of the table",
            )

    def validate(self) -> None:
        """
        Raises:
            InvalidJob: the table cannot be written by this sink, or the fields do not fit.
            SinkError: there is no table, or the catalog cannot be reached.
        """
        if self.create and not exists(self.catalog, self.table, self._options):
            self.iceberg_schema()
            return
        table = open_table(self.catalog, self.table, self._options, SinkError)
        self.fit_to(table, adds_columns=self.add_columns)

    def iceberg_schema(self) -> pa.Schema:
        """The fields with types that Iceberg has.

        Raises:
            InvalidJob: it has none for a field.
        """
        schema = self.shape.schema
        try:
            package("pyiceberg.io.pyarrow")._pyarrow_to_schema_without_ids(schema)
        except Exception as error:
            raise InvalidJob(
                f"the fields {', '.join(f'{f.name}: {f.type}' for f in schema)} cannot become columns of an Iceberg table: {error}",
                remedy="give types that Iceberg has, in a pyarrow.Schema",
            ) from error
        return schema
