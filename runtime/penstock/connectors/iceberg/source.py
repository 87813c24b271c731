"""`IcebergSource`: read the rows of an Iceberg table, either one snapshot or also all later appends.

IcebergSource(lake, "weather.readings", Reading)
IcebergSource(lake, "weather.readings", Reading, follow=timedelta(seconds=10))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import pyarrow as pa

from penstock.common.errors import SourceError
from penstock.connectors.core.source import ReaderContext, SourceReader, Split
from penstock.connectors.file.storage import StorageOptions, explained
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.connectors.iceberg.table import check_name, close_catalog, open_catalog, open_table, package, schema_of
from penstock.connectors.lakehouse.changes import Commit, TableChanges
from penstock.connectors.lakehouse.reader import ColumnNames
from penstock.connectors.lakehouse.source import LakehouseReader, LakehouseSource, LakehouseSourceOptions

_NOTHING = 0
"""The state of a table without snapshots."""
_FIELD_ID = b"PARQUET:field_id"


class IcebergSource(LakehouseSource):
    """A source that reads the rows of an Iceberg table: one snapshot, or also all later appends.

    Args:
        catalog: the catalog's properties (see the package's docstring).
        table: the name, as "namespace.table".
        fields: the columns to read and the form of records (see `formats.shape`). Without fields, records are dicts of all columns.
        snapshot_id: the snapshot to read. The default is the newest snapshot at the start.
        options: the options of all table formats: `record`, `follow`, `start`, `on_change`. A version is a snapshot's id.
    """

    def __init__(
        self,
        catalog: Mapping[str, str],
        table: str,
        fields: Declaration = None,
        *,
        snapshot_id: int | None = None,
        **options: Unpack[LakehouseSourceOptions],
    ) -> None:
        package()
        check_name(table)
        self.catalog = dict(catalog)
        self.table = table
        super().__init__(table, fields, snapshot_id, **options)

    def open_table(self, options: StorageOptions, opened: Any = None) -> Any:
        return open_table(self.catalog, self.table, options, SourceError, opened)

    def readable_columns(self, table: Any) -> pa.Schema:
        return package("pyiceberg.io.pyarrow").schema_to_pyarrow(table.schema(), include_field_ids=False)

    def _changes(self) -> IcebergChanges:
        return IcebergChanges(self)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return IcebergReader(self, context.object_store_options)


class IcebergChanges(TableChanges):
    def __init__(self, source: IcebergSource) -> None:
        self.name = source.table
        self._source = source
        self._options = source.store_options({})
        self._catalog: Any = None

    def _open(self) -> Any:
        if self._catalog is None:
            self._catalog = open_catalog(self._source.catalog, self._options, SourceError)
        return self._source.open_table(self._options, self._catalog)

    def newest(self) -> int:
        snapshot = self._open().current_snapshot()
        return _NOTHING if snapshot is None else int(snapshot.snapshot_id)

    def snapshot(self, version: int | None) -> tuple[int, list[Split]]:
        table = self._open()
        snapshot = table.current_snapshot() if version is None else table.snapshot_by_id(version)
        if snapshot is None:
            if version is None:
                return _NOTHING, []
            raise SourceError(
                f"Iceberg table {self.name!r} has no snapshot {version}",
                remedy="the snapshot may have expired; choose one that table.metadata.snapshots lists",
            )
        tasks = list(table.scan(snapshot_id=snapshot.snapshot_id).plan_files())
        if any(task.delete_files for task in tasks):
            raise SourceError(
                f"Iceberg table {self.name!r} has delete files, which this source does not read",
                remedy="compact the table (rewrite_data_files), and set writers to copy on write",
            )
        return int(snapshot.snapshot_id), [_split(snapshot.snapshot_id, task.file, table) for task in tasks]

    def since(self, version: int) -> list[Commit]:
        table = self._open()
        snapshot = table.current_snapshot()
        newer: list[Any] = []
        while snapshot is not None and snapshot.snapshot_id != version:
            newer.append(snapshot)
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
            if snapshot is None and (version != _NOTHING or parent is not None):
                raise SourceError(
                    f"snapshot {version} of Iceberg table {self.name!r}, which the job has read up to, is not an ancestor of the current "
                    f"one",
                    remedy="it has expired, or the table was rolled back; keep snapshots for longer than the job may be stopped. To "
                    "continue, "
                    "start the job without state",
                )
        return [self._commit(table, snapshot) for snapshot in reversed(newer)]

    def _commit(self, table: Any, snapshot: Any) -> Commit:
        manifest = package("pyiceberg.manifest")
        operation = "append" if snapshot.summary is None else snapshot.summary.operation.value
        id = int(snapshot.snapshot_id)
        if operation == "replace":
            return Commit(id, [])
        if operation != "append":
            return Commit(id, [], f"its operation is {operation!r}")
        entries = [
            entry
            for listed in snapshot.manifests(table.io)
            if listed.added_snapshot_id == id and listed.content == manifest.ManifestContent.DATA
            for entry in listed.fetch_manifest_entry(table.io, discard_deleted=True)
            if entry.status == manifest.ManifestEntryStatus.ADDED
        ]
        return Commit(id, [_split(id, entry.data_file, table) for entry in entries])

    def close(self) -> None:
        close_catalog(self._catalog)


class IcebergReader(LakehouseReader):
    def _columns(self, shape: RecordShape) -> tuple[pa.Schema, ColumnNames]:
        ids = {int(field.metadata[_FIELD_ID]): field.name for field in schema_of(self._table)}
        return shape.schema, NamesByIds(ids)

    def _constant(self, value: Any, kind: pa.DataType) -> Any:
        return _value(value, kind)

    def _open_file(self, path: str) -> Any:
        with explained(path, "read"):
            return self._table.io.new_input(path).open(seekable=True)


class NamesByIds:
    """A function from columns in a file to columns of the table. It matches by field id, because a column may have a new name."""

    def __init__(self, ids: dict[int, str]) -> None:
        self._ids = ids

    def __call__(self, schema: pa.Schema) -> dict[str, str]:
        found = {}
        for field in schema:
            id = (field.metadata or {}).get(_FIELD_ID)
            name = field.name if id is None else self._ids.get(int(id))
            if name is not None:
                found[name] = field.name
        return found


def _value(value: Any, kind: pa.DataType) -> Any:
    """Convert a partition value of a manifest to the column's type: Iceberg stores dates as days and times as microseconds.

    >>> _value(1, pa.date32()), _value("x", pa.string())
    (datetime.date(1970, 1, 2), 'x')
    """
    return pa.scalar(value, pa.int32() if pa.types.is_date(kind) else None).cast(kind).as_py()


def _split(snapshot_id: int, file: Any, table: Any) -> Split:
    """Return the split of one file. `partition` has values of partition columns. The file may lack these columns, for
    example if the table was made from another table's files."""
    spec = table.specs()[file.spec_id]
    schema = table.schema()
    partition = {
        schema.find_column_name(field.source_id): file.partition[index]
        for index, field in enumerate(spec.fields)
        if str(field.transform) == "identity" and isinstance(file.partition[index], str | int | float | bool)
    }
    return Split(
        f"{snapshot_id}:{file.file_path}", {"path": file.file_path, "partition": partition}, file.file_size_in_bytes
    )
