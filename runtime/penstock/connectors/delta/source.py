"""`DeltaSource`: the rows of a Delta table; a version of it, or on and on what is appended.

DeltaSource("s3://lake/readings", Reading)
DeltaSource("s3://lake/readings", Reading, follow=timedelta(seconds=10))
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from penstock.common.errors import SourceError
from penstock.common.time import TimeLike
from penstock.connectors.delta.table import location_of, open_table, package, schema_of, storage_options_of
from penstock.connectors.file.source.open_files import OpenFiles
from penstock.connectors.file.storage import Storage, StorageOptions, is_local, local_path
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.connectors.lakehouse.changes import Commit, OnChange, Reading, TableChanges, TableEnumerator
from penstock.connectors.lakehouse.reader import TableFileReader, check_columns
from penstock.connectors.source import ReaderContext, Source, SourceReader, Split, SplitEnumerator, SplitReader

_ESCAPED = re.compile(r"(\\u00[0-9A-Fa-f]{2})+")
_ZONE = re.compile(r"(Z|[+-]\d\d:?\d\d)$")


class DeltaSource(Source):
    """
    Args:
        path: of the table.
        fields: which columns, and what records are (see `formats.shape`); all of them, as dicts, if none are declared.
        record: another form for the same fields: "tuple", "dict" or "row".
        version: of the table; the newest at the start unless given.
        follow: look for new commits at this interval; the source does not end.
        start: where a source that follows begins: "snapshot" (all rows, then what comes), "latest", or a version: with the commit behind it.
        on_change: a commit that deletes or changes rows is an error ("fail"), or passed over ("skip").
        storage_options: delta-rs's, over what the job's configuration says of object stores.
    """

    in_order = True

    def __init__(
        self,
        path: str,
        fields: Declaration = None,
        *,
        record: str | None = None,
        version: int | None = None,
        follow: TimeLike | None = None,
        start: Any = "snapshot",
        on_change: OnChange = "fail",
        storage_options: dict[str, str] | None = None,
    ) -> None:
        package()
        self.path = location_of(path)
        self.shape = None if fields is None else RecordShape.of(fields, record)
        self.record = record
        self.reading = Reading.of(version, follow, start, on_change)
        self.bounded = self.reading.follow_ms is None
        self.storage_options = dict(storage_options or {})
        self._fsspec_options: StorageOptions = {}

    def with_object_store_options(self, options: dict[str, Any]) -> DeltaSource:
        other = DeltaSource(self.path, self.shape, record=self.record, storage_options=self.storage_options)
        other.reading, other.bounded, other._fsspec_options = self.reading, self.bounded, dict(options)
        return other

    def open(self, options: StorageOptions, version: int | None = None) -> Any:
        given = storage_options_of(self.path, {**options, **self._fsspec_options}, self.storage_options)
        return open_table(self.path, given, SourceError, version)

    def shape_of(self, table: Any) -> RecordShape:
        """What records are.

        Raises:
            SourceError: the table has no such columns, or its files have them under other names.
        """
        check_names(table.metadata().configuration, self.path)
        if self.shape is None:
            return RecordShape.of(schema_of(table), self.record)
        check_columns(self.shape, schema_of(table), self.path)
        return self.shape

    def create_enumerator(self) -> SplitEnumerator:
        return TableEnumerator(DeltaChanges(self), self.reading)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return DeltaReader(self, {**context.object_store_options, **self._fsspec_options})

    def produced_type(self) -> Any:
        return None if self.shape is None else self.shape.produced_type()

    def validate(self) -> None:
        """
        Raises:
            SourceError: there is no table, no such version, or it cannot be reached or read.
        """
        self.shape_of(self.open({}))
        if self.reading.start == "snapshot":
            DeltaChanges(self).snapshot(self.reading.version)


class DeltaChanges(TableChanges):
    def __init__(self, source: DeltaSource) -> None:
        self.name = source.path
        self._source = source
        self._storage = Storage(source.path, source._fsspec_options)

    def newest(self) -> int:
        return int(self._source.open({}).version())

    def snapshot(self, version: int | None) -> tuple[int, list[Split]]:
        table = self._source.open({}, version)
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
                f"Delta table {self.name!r} was read up to version {version}, and has {newest} now: it was made anew",
                remedy="start the job anew, or with start= and a version that the table has",
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
                f"version {version} of Delta table {self.name!r} has left its log before it was read",
                remedy="raise delta.logRetentionDuration above the longest time that the job may stand; to go on, start the job anew",
            ) from error
        for action in actions:
            if "metaData" in action:
                check_names(action["metaData"].get("configuration") or {}, self.name)
        adds = [action["add"] for action in actions if "add" in action and action["add"].get("dataChange", True)]
        removes = sum(action["remove"].get("dataChange", True) for action in actions if "remove" in action)
        told = next((action["commitInfo"].get("operation", "") for action in actions if "commitInfo" in action), "")
        change = f"{removes} files are removed ({told})" if removes else ""
        if not change and any(add.get("deletionVector") for add in adds):
            raise _deletion_vectors(self.name)
        files = [_split(version, unquote(add["path"]), add["size"], add.get("partitionValues") or {}) for add in adds]
        return Commit(version, files, change)


class DeltaReader(SourceReader):
    def __init__(self, source: DeltaSource, options: StorageOptions) -> None:
        self._source = source
        self._storage = Storage(source.path, options)
        self._options = options
        self._files = OpenFiles()
        self._found: tuple[RecordShape, pa.Schema] | None = None

    def open_split(self, split: Split, position: Any) -> SplitReader:
        if self._found is None:
            table = self._source.open(self._options)
            self._found = self._source.shape_of(table), schema_of(table)
        shape, schema = self._found
        root = self._source.path
        path = posixpath.join(local_path(root) if is_local(root) else root, split.properties["path"])
        constants = {
            name: None if text is None else _value(text, schema.field(name).type)
            for name, text in split.properties["partition"].items()
            if schema.get_field_index(name) >= 0
        }
        return TableFileReader(
            path, lambda: self._storage.open(path), shape, _same_names, constants, self._files, position
        )


def _same_names(schema: pa.Schema) -> dict[str, str]:
    return {name: name for name in schema.names}


def _split(version: int, path: str, size: int, partition: dict[str, Any]) -> Split:
    from penstock.connectors.delta.target import as_text

    texts = {name: as_text(value) for name, value in partition.items()}
    return Split(f"{version}:{path}", {"path": path, "partition": texts}, int(size))


def _value(text: str, kind: pa.DataType) -> Any:
    """A partition value of the log, as the column has it. Times are in UTC, with a zone or without; bytes are a text in UTF-8, or escaped.

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
    """
    Raises:
        SourceError: columns have other names in the table's files: all values would be read as null.
    """
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        raise SourceError(
            f"Delta table {name!r} has column mapping, which this source does not read",
            remedy="write its rows to a table without it (delta.columnMapping.mode=none)",
        )
