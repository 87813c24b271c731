"""`DeltaSource`: read the rows of a Delta table, either one version or also all later appends.

DeltaSource("s3://lake/readings", Reading)
DeltaSource("s3://lake/readings", Reading, follow=timedelta(seconds=10))
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from typing import Any, Unpack
from urllib.parse import unquote

import pyarrow as pa

from penstock.common.errors import SourceError
from penstock.connectors.core.source import ReaderContext, SourceReader, Split
from penstock.connectors.delta.table import location_of, open_table, package, schema_of, storage_options_of
from penstock.connectors.file.storage import Storage, StorageOptions, is_local, local_path
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.connectors.lakehouse.changes import Commit, TableChanges
from penstock.connectors.lakehouse.reader import ColumnNames
from penstock.connectors.lakehouse.source import LakehouseReader, LakehouseSource, LakehouseSourceOptions

_ESCAPED = re.compile(r"(\\u00[0-9A-Fa-f]{2})+")
_ZONE = re.compile(r"(Z|[+-]\d\d:?\d\d)$")


class DeltaSource(LakehouseSource):
    """A source that reads the rows of a Delta table: one version, or also all later appends.

    Args:
        path: the table's path.
        fields: the columns to read and the form of records (see `formats.shape`). Without fields, records are dicts of all columns.
        version: the version to read. The default is the newest version at the start.
        storage_options: options for delta-rs. They override the job's object store settings.
        options: the options of all table formats: `record`, `follow`, `start`, `on_change`.
    """

    def __init__(
        self,
        path: str,
        fields: Declaration = None,
        *,
        version: int | None = None,
        storage_options: dict[str, str] | None = None,
        **options: Unpack[LakehouseSourceOptions],
    ) -> None:
        package()
        self.path = location_of(path)
        super().__init__(self.path, fields, version, **options)
        self.storage_options = dict(storage_options or {})

    def open_table(self, options: StorageOptions, version: int | None = None) -> Any:
        return open_table(self.path, storage_options_of(self.path, options, self.storage_options), SourceError, version)

    def readable_columns(self, table: Any) -> pa.Schema:
        check_names(table.metadata().configuration, self.path)
        return schema_of(table)

    def _changes(self) -> DeltaChanges:
        return DeltaChanges(self)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return DeltaReader(self, context.object_store_options)


class DeltaChanges(TableChanges):
    def __init__(self, source: DeltaSource) -> None:
        self.name = source.path
        self._source = source
        self._options = source.store_options({})
        self._storage = Storage(source.path, self._options)

    def newest(self) -> int:
        return int(self._source.open_table(self._options).version())

    def snapshot(self, version: int | None) -> tuple[int, list[Split]]:
        table = self._source.open_table(self._options, version)
        if pa.table(table.deletion_vectors()).num_rows:
            raise _deletion_vectors(self.name)
        number = int(table.version())
        actions = pa.table(table.get_add_actions(flatten=False)).to_pylist()
        found = [
            _split(
                number,
                unquote(action["path"]),
                action["size_bytes"],
                action.get("partition") or action.get("partition_values") or {},
            )
            for action in actions
        ]
        return number, sorted(found, key=lambda split: split.id)

    def since(self, version: int) -> list[Commit]:
        newest = self.newest()
        if newest < version:
            raise SourceError(
                f"Delta table {self.name!r} was read up to version {version}, but now has version {newest}: it was created again",
                remedy="start the job without state, or set start= to a version that the table has",
            )
        return [self._commit(number) for number in range(version + 1, newest + 1)]

    def _commit(self, version: int) -> Commit:
        path = posixpath.join(
            local_path(self.name) if is_local(self.name) else self.name, f"_delta_log/{version:020d}.json"
        )
        try:
            with self._storage.open(path) as file:
                actions = [json.loads(line) for line in file.read().splitlines() if line.strip()]
        except SourceError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            raise SourceError(
                f"version {version} of Delta table {self.name!r} was removed from its log before the job read it",
                remedy="raise delta.logRetentionDuration above the longest time that the job may be stopped; to continue, start it "
                "without state",
            ) from error
        for action in actions:
            if "metaData" in action:
                check_names(action["metaData"].get("configuration") or {}, self.name)
        adds = [action["add"] for action in actions if "add" in action and action["add"].get("dataChange", True)]
        removes = sum(action["remove"].get("dataChange", True) for action in actions if "remove" in action)
        operation = next(
            (action["commitInfo"].get("operation", "") for action in actions if "commitInfo" in action), ""
        )
        change = f"it removes {removes} files ({operation})" if removes else ""
        if not change and any(add.get("deletionVector") for add in adds):
            raise _deletion_vectors(self.name)
        files = [_split(version, unquote(add["path"]), add["size"], add.get("partitionValues") or {}) for add in adds]
        return Commit(version, files, change)


class DeltaReader(LakehouseReader):
    def __init__(self, source: DeltaSource, options: StorageOptions) -> None:
        super().__init__(source, options)
        self._storage = Storage(source.path, self._options)

    def _columns(self, shape: RecordShape) -> tuple[pa.Schema, ColumnNames]:
        return schema_of(self._table), _same_names

    def _constant(self, value: Any, kind: pa.DataType) -> Any:
        return _value(value, kind)

    def _path(self, path: str) -> str:
        root = self._source.name
        return posixpath.join(local_path(root) if is_local(root) else root, path)

    def _open_file(self, path: str) -> Any:
        return self._storage.open(path)


def _same_names(schema: pa.Schema) -> dict[str, str]:
    return {name: name for name in schema.names}


def _split(version: int, path: str, size: int, partition: dict[str, Any]) -> Split:
    from penstock.connectors.delta.target import as_text

    texts = {name: as_text(value) for name, value in partition.items()}
    return Split(f"{version}:{path}", {"path": path, "partition": texts}, int(size))


def _value(text: str, kind: pa.DataType) -> Any:
    """Convert a partition value of the log to the column's type. Times are in UTC, with or without a zone. Bytes are UTF-8 text or
    escaped.

    >>> _value("2013-07-01", pa.date32()), _value("true", pa.bool_())
    (datetime.date(2013, 7, 1), True)
    >>> _value("ab", pa.binary()), _value(r"\\u0000\\u00FF", pa.binary())
    (b'ab', b'\\x00\\xff')
    """
    if pa.types.is_binary(kind):
        if _ESCAPED.fullmatch(text):
            return bytes.fromhex(text.replace("\\u00", ""))
        return text.encode()
    if pa.types.is_timestamp(kind) and kind.tz is not None and not _ZONE.search(text):
        text += "Z"
    return pa.scalar(text).cast(kind).as_py()


def _deletion_vectors(name: str) -> SourceError:
    return SourceError(
        f"Delta table {name!r} has deletion vectors, which this source does not read",
        remedy="rewrite its files (REORG TABLE … APPLY (PURGE)), and set delta.enableDeletionVectors=false",
    )


def check_names(configuration: Mapping[str, Any], name: str) -> None:
    """Check that the columns have the same names in the table's files as in the table.

    Raises:
        SourceError: the table's files use other column names, so all values would be read as null.
    """
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        raise SourceError(
            f"Delta table {name!r} has column mapping, which this source does not read",
            remedy="write its rows to a table without it (delta.columnMapping.mode=none)",
        )
