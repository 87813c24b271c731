"""Read one file of a table: the columns that the program declares, under its names and with its types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.errors import RecordFormatError, SourceError
from penstock.connectors.core.source import ReadBounds, SplitReader
from penstock.connectors.file.source.lazy_reader import LazyReader
from penstock.connectors.file.source.open_files import OpenFiles
from penstock.connectors.formats.parquet import ParquetFormat
from penstock.connectors.formats.shape import RecordShape
from penstock.records.batch import ColumnBatch

ColumnNames = Callable[[pa.Schema], dict[str, str]]
"""A function from a file's schema to a mapping: a column's name in the table -> its name in the file."""


class TableFileReader(LazyReader):
    """A reader of one file of a table.

    Args:
        open_file: returns a seekable binary file.
        names: see `ColumnNames`.
        constants: values of columns that are not in the file, such as partition columns.
    """

    def __init__(
        self,
        path: str,
        open_file: Callable[[], Any],
        shape: RecordShape,
        names: ColumnNames,
        constants: dict[str, Any],
        files: OpenFiles,
        position: Any,
    ) -> None:
        super().__init__(files, position)
        self._path = path
        self._open_file = open_file
        self._shape = shape
        self._names = names
        self._constants = constants
        self._in_file: dict[str, str] = {}

    def read(self, bounds: ReadBounds) -> ColumnBatch | None:
        batch = super().read(bounds)
        assert batch is None or isinstance(batch, ColumnBatch)
        return None if batch is None else ColumnBatch(self._shaped(batch.columns), None, self._shape.maker)

    def _opened(self) -> SplitReader:
        self._file = self._open_file()
        try:
            schema = pq.read_schema(self._file)
        except (pa.ArrowException, OSError) as error:
            raise SourceError(
                f"file {self._path!r} of the table cannot be read: {error}",
                remedy="keep the files of the table for longer: raise the retention of VACUUM and of the expiry of snapshots",
            ) from error
        self._in_file = {
            name: found for name, found in self._names(schema).items() if self._shape.schema.get_field_index(name) >= 0
        }
        wanted = [
            pa.field(self._in_file[field.name], field.type)
            for field in self._shape.schema
            if field.name in self._in_file
        ]
        format = ParquetFormat(pa.schema(wanted or [schema.field(0)]))
        self._file.seek(0)
        return format.open(self._path, self._file, 0, 1 << 62, self._position)

    def _shaped(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        arrays = []
        for declared, field in zip(self._shape.fields, self._shape.schema, strict=True):
            if field.name in self._in_file:
                array = columns.column(columns.schema.get_field_index(self._in_file[field.name]))
            else:
                value = self._constants.get(field.name)
                array = pa.repeat(pa.scalar(value, field.type), columns.num_rows)
            if array.null_count and not declared.optional:
                raise RecordFormatError(
                    f"column {field.name!r} of {self._path!r} holds nulls, but the field is not optional",
                    remedy=f"declare it as {declared.type!r} | None",
                )
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._shape.schema)


def check_columns(shape: RecordShape, table: pa.Schema, name: str) -> None:
    """Check that the table has the declared columns.

    Raises:
        SourceError: the table has no such columns.
    """
    missing = [field for field in shape.names if table.get_field_index(field) < 0]
    if missing:
        raise SourceError(
            f"table {name!r} has no column {', '.join(map(repr, missing))}: it has {', '.join(table.names)}",
            remedy="declare the columns that the table has",
        )
