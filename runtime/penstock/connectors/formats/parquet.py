"""Parquet files, read in columns, a piece of a row group at a time.

A position is a row group and a row in it. A reader that starts inside a row group decodes the beginning of this group again,
and discards it. The reader does not touch earlier row groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.errors import RecordFormatError
from penstock.connectors.core.source import ReadBounds, SplitReader
from penstock.connectors.formats.columns.column_format import ColumnFormat
from penstock.connectors.formats.columns.declared_columns import columns_in, shape_in, shaped
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.records.batch import ColumnBatch

if TYPE_CHECKING:
    from collections.abc import Iterator


class ParquetFormat(ColumnFormat):
    """A format that reads the declared columns of Parquet files. If no columns are declared, it reads all columns as dicts.

    Args:
        fields: the columns, their types and the record type (see `formats.shape`). A column of another type is cast if no
            value is lost.
        record: another form for the same fields: "tuple", "dict" or "row".
        batch_size: maximum number of records decoded at once.
        case_sensitive: whether the names of columns must match in case.
    """

    def __init__(
        self,
        fields: Declaration = None,
        *,
        record: str | None = None,
        batch_size: int = 10_000,
        case_sensitive: bool = True,
    ) -> None:
        super().__init__(fields, record, case_sensitive=case_sensitive)
        self.batch_size = batch_size

    @property
    def splittable(self) -> bool:
        return True

    def open(self, path: str, file: Any, start: int, end: int, position: Any) -> SplitReader:
        try:
            opened = pq.ParquetFile(file)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(path, error) from error
        return ParquetReader(self, path, opened, _groups_between(opened, start, end), position)


class ParquetReader(SplitReader):
    """A reader of the row groups `groups` of one file."""

    def __init__(
        self, format: ParquetFormat, path: str, file: pq.ParquetFile, groups: list[int], position: Any
    ) -> None:
        self._path = path
        self._file = file
        self._shape = format.shape or RecordShape.of(file.schema_arrow, format.record)
        self._columns = columns_in(file.schema_arrow, self._shape, path, case_sensitive=format.case_sensitive)
        self._shape = shape_in(file.schema_arrow, self._shape, self._columns)
        self._batch_size = format.batch_size
        self._groups = groups
        group, row = (groups[0] if groups else 0, 0) if position is None else position
        self._row: int = row
        self._index = sum(1 for g in groups if g < group)
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._rest: pa.RecordBatch | None = None

    def read(self, bounds: ReadBounds) -> ColumnBatch | None:
        rest = self._rest
        if rest is None:
            rest = self._decode()
            if rest is None:
                return None
        limit = max(1, bounds.max_records)
        if rest.nbytes > bounds.max_bytes:
            limit = max(1, min(limit, rest.num_rows * bounds.max_bytes // rest.nbytes))
        part = rest.slice(0, limit)
        self._rest = rest.slice(limit) if rest.num_rows > limit else None
        self._row += part.num_rows
        self._skip_finished_groups()
        return ColumnBatch(part, None, self._shape.maker)

    @property
    def position(self) -> Any:
        group = self._groups[self._index] if self._index < len(self._groups) else self._file.num_row_groups
        return [group, self._row]

    @property
    def finished(self) -> bool:
        return self._rest is None and self._index >= len(self._groups)

    def lag(self) -> int:
        groups = self._groups[self._index :]
        return int(sum(self._file.metadata.row_group(group).num_rows for group in groups)) - self._row

    def close(self) -> None:
        self._batches = None
        self._file.close(force=True)

    def _decode(self) -> pa.RecordBatch | None:
        self._skip_finished_groups()
        if self._index >= len(self._groups):
            return None
        try:
            if self._batches is None:
                self._batches = self._open_group()
            where = f"row group {self._groups[self._index]}"
            return shaped(next(self._batches), self._columns, self._shape, self._path, where)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(self._path, error, f", row group {self._groups[self._index]}") from error

    def _open_group(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the current row group from the current row on."""
        skip = self._row
        for batch in self._file.iter_batches(
            self._batch_size, [self._groups[self._index]], [name for name, _ in self._columns], use_threads=False
        ):
            if skip >= batch.num_rows:
                skip -= batch.num_rows
            else:
                yield batch.slice(skip)
                skip = 0

    def _skip_finished_groups(self) -> None:
        if self._rest is not None:
            return
        while self._index < len(self._groups):
            if self._row < self._file.metadata.row_group(self._groups[self._index]).num_rows:
                return
            self._index += 1
            self._row = 0
            self._batches = None


def _groups_between(file: pq.ParquetFile, start: int, end: int) -> list[int]:
    """Return the row groups whose first byte lies in the range. So each group belongs to exactly one of the ranges that cover a file."""
    groups = []
    for number in range(file.num_row_groups):
        column = file.metadata.row_group(number).column(0)
        first = column.dictionary_page_offset or column.data_page_offset
        if start <= first < end:
            groups.append(number)
    return groups


def _unreadable(path: str, error: Exception, where: str = "") -> RecordFormatError:
    return RecordFormatError(
        f"cannot read the Parquet file {path!r}{where}: {error}",
        remedy="the file is damaged, is not Parquet, or does not have the declared types; remove or correct it",
    )
