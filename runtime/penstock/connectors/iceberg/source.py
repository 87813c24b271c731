"""`IcebergSource`: the rows of an Iceberg table; a snapshot of it, or on and on what is appended.

IcebergSource(lake, "weather.readings", Reading)
IcebergSource(lake, "weather.readings", Reading, follow=timedelta(seconds=10))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.common.errors import InvalidJob, SourceError
from penstock.common.time import TimeLike
from penstock.connectors.file.source.open_files import OpenFiles
from penstock.connectors.file.storage import StorageOptions, explained
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.connectors.iceberg.table import open_catalog, open_table, package, schema_of
from penstock.connectors.lakehouse.changes import Commit, OnChange, Reading, TableChanges, TableEnumerator
from penstock.connectors.lakehouse.reader import TableFileReader, check_columns
from penstock.connectors.source import ReaderContext, Source, SourceReader, Split, SplitEnumerator, SplitReader

_NOTHING = 0
"""The state of a table without snapshots."""
_FIELD_ID = b"PARQUET:field_id"


class IcebergSource(Source):
    """
    Args:
        catalog: see the package.
        table: "namespace.table".
        fields: which columns, and what records are (see `formats.shape`); all of them, as dicts, if none are declared.
        record: another form for the same fields: "tuple", "dict" or "row".
        snapshot_id: the newest at the start unless given.
        follow: look for new snapshots at this interval; the source does not end.
        start: where a source that follows begins: "snapshot" (all rows, then what comes), "latest", or a snapshot's id: with the one behind it.
        on_change: a snapshot that deletes or changes rows is an error ("fail"), or passed over ("skip").
    """

    in_order = True

    def __init__(
        self,
        catalog: Mapping[str, str],
        table: str,
        fields: Declaration = None,
        *,
        record: str | None = None,
        snapshot_id: int | None = None,
        follow: TimeLike | None = None,
        start: Any = "snapshot",
        on_change: OnChange = "fail",
    ) -> None:
        package()
        if "." not in table:
            raise InvalidJob(f"Iceberg table {table!r}", remedy="write 'namespace.table'")
        self.catalog = dict(catalog)
        self.table = table
        self.shape = None if fields is None else RecordShape.of(fields, record)
        self.record = record
        self.reading = Reading.of(snapshot_id, follow, start, on_change)
        self.bounded = self.reading.follow_ms is None
        self._options: StorageOptions = {}

    def with_object_store_options(self, options: dict[str, Any]) -> IcebergSource:
        other = IcebergSource(self.catalog, self.table, self.shape, record=self.record)
        other.reading, other.bounded, other._options = self.reading, self.bounded, dict(options)
        return other

    def open(self, options: StorageOptions, opened: Any = None) -> Any:
        return open_table(self.catalog, self.table, {**options, **self._options}, SourceError, opened)

    def shape_of(self, table: Any) -> RecordShape:
        """What records are.

        Raises:
            SourceError: the table has no such columns.
        """
        schema = package("pyiceberg.io.pyarrow").schema_to_pyarrow(table.schema(), include_field_ids=False)
        if self.shape is None:
            return RecordShape.of(schema, self.record)
        check_columns(self.shape, schema, self.table)
        return self.shape

    def create_enumerator(self) -> SplitEnumerator:
        return TableEnumerator(IcebergChanges(self), self.reading)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return IcebergReader(self, context.object_store_options)

    def produced_type(self) -> Any:
        return None if self.shape is None else self.shape.produced_type()

    def validate(self) -> None:
        """
        Raises:
            SourceError: there is no table, no such snapshot, or it cannot be reached or read.
        """
        self.shape_of(self.open({}))
        if self.reading.start == "snapshot":
            IcebergChanges(self).snapshot(self.reading.version)


class IcebergChanges(TableChanges):
    def __init__(self, source: IcebergSource) -> None:
        self.name = source.table
        self._source = source
        self._catalog: Any = None

    def _open(self) -> Any:
        if self._catalog is None:
            self._catalog = open_catalog(self._source.catalog, self._source._options, SourceError)
        return self._source.open({}, self._catalog)

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
                remedy="it may have expired; name one that table.metadata.snapshots has",
            )
        tasks = list(table.scan(snapshot_id=snapshot.snapshot_id).plan_files())
        if any(task.delete_files for task in tasks):
            raise SourceError(
                f"Iceberg table {self.name!r} has delete files, which this source does not read",
                remedy="compact the table (rewrite_data_files), and let writers copy on write",
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
                    f"snapshot {version} of Iceberg table {self.name!r}, up to which was read, is not among those before the present one",
                    remedy="it has expired, or the table was rolled back; keep snapshots for longer than the job may stand. To go on, "
                    "start the job anew",
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
        engine = getattr(self._catalog, "engine", None)
        if engine is not None:
            engine.dispose()


class IcebergReader(SourceReader):
    def __init__(self, source: IcebergSource, options: StorageOptions) -> None:
        self._source = source
        self._options = options
        self._files = OpenFiles()
        self._table: Any = None

    def open_split(self, split: Split, position: Any) -> SplitReader:
        if self._table is None:
            self._table = self._source.open(self._options)
            self._shape = self._source.shape_of(self._table)
            ids = {int(field.metadata[_FIELD_ID]): field.name for field in schema_of(self._table)}
            self._names = NamesByIds(ids)
        path = split.properties["path"]
        schema = self._shape.schema
        constants = {
            name: _value(value, schema.field(name).type)
            for name, value in split.properties["partition"].items()
            if value is not None and schema.get_field_index(name) >= 0
        }
        return TableFileReader(
            path, lambda: self._input(path), self._shape, self._names, constants, self._files, position
        )

    def _input(self, path: str) -> Any:
        with explained(path, "read"):
            return self._table.io.new_input(path).open(seekable=True)


class NamesByIds:
    """Columns have ids in Iceberg's files, and other names where they were renamed since."""

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
    """A partition value of a manifest, as the column has it: days and microseconds are dates and times.

    >>> _value(1, pa.date32()), _value("x", pa.string())
    (datetime.date(1970, 1, 2), 'x')
    """
    return pa.scalar(value, pa.int32() if pa.types.is_date(kind) else None).cast(kind).as_py()


def _split(snapshot_id: int, file: Any, table: Any) -> Split:
    """`partition`: what may stand in the manifest alone, for tables that were made of other tables' files."""
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
