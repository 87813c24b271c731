"""The files that a subtask writes for a Delta table, and their log entries."""

from __future__ import annotations

import datetime
import decimal
import math
import os
import posixpath
import time
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.errors import RecordFormatError, SinkError
from penstock.connectors.file.storage import StorageOptions, explained, file_system, is_local, local_path
from penstock.connectors.lakehouse.files import DurableFile, TableTarget
from penstock.connectors.lakehouse.partitions import Key, directory_of, partitions_of

_LONGEST_BOUND = 64
"""Maximum length in characters of a text that is used as a bound in a file's statistics."""


class DeltaTarget(TableTarget):
    """The Delta table that a subtask writes files for.

    Args:
        schema: the written columns, with the table's types.
        partition_by: the table's partition columns. Their values are in the log and not in the files.
        options: fsspec options, for tables that are not local.
    """

    def __init__(self, path: str, schema: pa.Schema, partition_by: list[str], options: StorageOptions) -> None:
        self.schema = schema
        self._path = path
        self._partition_by = [name for name in partition_by if schema.get_field_index(name) >= 0]
        self._unset = [name for name in partition_by if schema.get_field_index(name) < 0]
        self._kept = [name for name in schema.names if name not in self._partition_by]
        self.file_schema = pa.schema([schema.field(name) for name in self._kept])
        self._fs = None if is_local(path) else file_system(path, options)
        self._remove = remover(path, options)

    def partition(self, rows: pa.RecordBatch) -> Iterable[tuple[Key, pa.RecordBatch]]:
        return partitions_of(rows.select(self._kept), [rows.column(name) for name in self._partition_by])

    def create(self, key: Key, name: str) -> tuple[str, Any]:
        path = directory_of(self._partition_by, [as_text(value) for value in key]) + name
        with explained(posixpath.join(self._path, path), "write", SinkError):
            if self._fs is None:
                return path, DurableFile(posixpath.join(local_path(self._path), path))
            return path, self._fs.open(posixpath.join(self._path, path), "wb")

    def describe(self, key: Key, path: str, size: int, metadata: pq.FileMetaData) -> dict[str, Any]:
        values = dict(zip(self._partition_by, map(as_text, key), strict=True))
        return {
            "path": path,
            "size": size,
            "partition": {**values, **dict.fromkeys(self._unset)},
            "modified": int(time.time() * 1000),
            "stats": statistics(metadata, self.file_schema),
        }

    def remove(self, path: str) -> None:
        self._remove(path)


def remover(root: str, options: StorageOptions) -> Callable[[str], None]:
    """Return a function that removes a file by its path relative to the table's path. A missing file is not an error."""

    def remove_local(path: str) -> None:
        with explained(path, "remove", SinkError):
            try:
                os.unlink(posixpath.join(local_path(root), path))
            except FileNotFoundError:
                return

    if is_local(root):
        return remove_local

    def remove_remote(path: str) -> None:
        full = posixpath.join(root, path)
        with explained(full, "remove", SinkError):
            try:
                file_system(root, options).rm_file(full)
            except FileNotFoundError:
                return

    return remove_remote


def has_file(root: str, path: str, options: StorageOptions) -> bool:
    """Return whether a file with this path exists below the table's path."""
    full = posixpath.join(local_path(root) if is_local(root) else root, path)
    with explained(full, "find", SinkError):
        return os.path.exists(full) if is_local(root) else bool(file_system(root, options).exists(full))


def as_text(value: Any) -> str | None:
    """Format a partition value as Delta's log stores it.

    >>> as_text(datetime.date(2013, 1, 2)), as_text(True), as_text(None)
    ('2013-01-02', 'true', None)
    """
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(datetime.UTC).replace(tzinfo=None)
        return str(value.isoformat(" ", "microseconds"))
    if isinstance(value, datetime.date):
        return str(value.isoformat())
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise RecordFormatError(
                f"{value[:100]!r} cannot be a partition value of a Delta table, because its log stores text",
                remedy="partition by a column of another type, such as the bytes in hexadecimal",
            ) from error
    return str(value)


def statistics(metadata: pq.FileMetaData, schema: pa.Schema) -> dict[str, Any]:
    """Return the bounds by which readers skip files, for columns whose bounds all Delta readers interpret in the same way.

    The result is the `stats` entry of the log."""
    found: dict[str, Any] = {"numRecords": metadata.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    names = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for field in schema:
        index = names.get(field.name)
        if index is None:
            continue
        statistics = [group.column(index).statistics for group in groups]
        if any(one is None or not one.has_null_count for one in statistics):
            continue
        found["nullCount"][field.name] = sum(one.null_count for one in statistics)
        try:
            bounds = [(one.min, one.max) for one in statistics if one.has_min_max]
        except (OverflowError, ValueError):  # a time that Python does not support
            continue
        if len(bounds) < sum(one.num_values > 0 for one in statistics) or not bounds:
            continue
        least, most = (
            _bound(min(low for low, _ in bounds), up=False),
            _bound(max(high for _, high in bounds), up=True),
        )
        if least is not None and most is not None:
            found["minValues"][field.name], found["maxValues"][field.name] = least, most
    return found


def _bound(value: Any, *, up: bool) -> Any:
    if isinstance(value, bool | float | bytes | decimal.Decimal):
        return None  # some readers order NaN above all numbers, and Parquet's bounds do not contain it
    if isinstance(value, int) or (isinstance(value, str) and len(value) <= _LONGEST_BOUND):
        return value
    if isinstance(value, datetime.datetime):
        millis = value.microsecond / 1000
        whole = math.ceil(millis) if up else math.floor(millis)
        try:
            rounded = value.replace(microsecond=0, tzinfo=None) + datetime.timedelta(milliseconds=whole)
        except OverflowError:  # the last millisecond of the year 9999
            return None
        return rounded.isoformat("T", "milliseconds") + ("Z" if value.tzinfo is not None else "")
    return value.isoformat() if isinstance(value, datetime.date) else None
