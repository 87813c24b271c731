"""Files that are written as a whole, such as Parquet, from rows or from columns.

A bulk writer holds records back until it has enough for a row group. `finish` writes the rest and the footer. Such a file
cannot be cut and continued, so it ends at every checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.serialization import BulkWriterFactory
from penstock.common.type_info.declared_fields import FieldMismatch
from penstock.connectors.formats.columns.declared_columns import cast_to, declared_columns
from penstock.connectors.formats.csv import CsvDialect
from penstock.connectors.formats.encode import CsvEncoder
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.records.columns import rows_as_tuples

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.common.typeinfo import TypeInformation
    from penstock.records.batch import ColumnBatch

_GROUP_BYTES = 32 << 20


class ByteSink(Protocol):
    def write(self, data: bytes, /) -> object: ...


class BulkWriter(ABC):
    """A writer of one file."""

    @abstractmethod
    def add(self, values: Sequence[Any], /) -> None: ...

    @abstractmethod
    def add_columns(self, batch: ColumnBatch, /) -> None:
        """Write the records of a batch of columns. The result is the same as that of `add` for these records."""

    @property
    @abstractmethod
    def buffered_bytes(self) -> int:
        """Return the approximate number of bytes not yet written."""

    @abstractmethod
    def finish(self) -> None:
        """Write the rest. The sink remains open."""

    def discard(self) -> None:  # noqa: B027 - most writers have nothing to release
        """Drop the unwritten records and free all resources. The file is not needed."""


class ColumnsWriterFactory(BulkWriterFactory):
    """A factory of bulk writers for files with columns."""

    suffix = ""

    @abstractmethod
    def create(self, sink: ByteSink) -> BulkWriter: ...


class ParquetWriterFactory(ColumnsWriterFactory):
    """A factory of Parquet writers.

    Args:
        fields: the columns (see `formats.shape`). Rows must have these fields, and columns are cast to their types.
        compression: the compression of pages: "snappy", "zstd", "gzip" or "none".
        row_group_rows: maximum number of rows of a row group.
    """

    suffix = ".parquet"

    def __init__(self, fields: Declaration, *, compression: str = "snappy", row_group_rows: int = 1_000_000) -> None:
        self.shape = RecordShape.of(fields)
        assert self.shape.schema
        self.compression = compression
        self.row_group_rows = row_group_rows

    def create(self, sink: ByteSink) -> BulkWriter:
        return ParquetFileWriter(self, sink)


class ColumnsFileWriter(BulkWriter):
    """A writer that holds columns until they fill a row group.

    Args:
        most_rows: maximum number of rows of a group.
        most_bytes: approximate maximum number of bytes of a group.
    """

    def __init__(self, shape: RecordShape, sink: ByteSink, *, most_rows: int, most_bytes: int = _GROUP_BYTES) -> None:
        self._shape = shape
        self._most_rows, self._most_bytes = most_rows, most_bytes
        self._buffered: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._file = _FileLike(sink)
        self._writer: Any = self.open(pa.PythonFile(self._file, "w"))

    @abstractmethod
    def open(self, file: pa.NativeFile) -> Any:
        """Return Arrow's writer of the format. It has a method `close`."""

    @abstractmethod
    def write_table(self, table: pa.Table) -> None: ...

    def add(self, values: Sequence[Any]) -> None:
        self._hold(columns_of(values, self._shape))

    def add_columns(self, batch: ColumnBatch) -> None:
        self._hold(cast_to(declared_columns(batch, self._shape.declared_fields), self._shape.schema))

    def _hold(self, columns: pa.RecordBatch) -> None:
        self._buffered.append(columns)
        self._rows += columns.num_rows
        self._bytes += columns.nbytes
        if self._bytes >= self._most_bytes or self._rows >= self._most_rows:
            self._write_group()

    def _write_group(self) -> None:
        if self._buffered:
            self.write_table(pa.Table.from_batches(self._buffered))
        self._buffered, self._rows, self._bytes = [], 0, 0

    @property
    def buffered_bytes(self) -> int:
        return self._bytes

    def finish(self) -> None:
        try:
            self._write_group()
            self._writer.close()
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        self._buffered = []
        self._file.discard()
        try:
            # Otherwise Arrow would write the footer when the garbage collector removes the writer. The part may then no longer exist.
            self._writer.close()
        except pa.ArrowException:
            return


class ParquetFileWriter(ColumnsFileWriter):
    def __init__(self, factory: ParquetWriterFactory, sink: ByteSink) -> None:
        self._compression = factory.compression
        super().__init__(factory.shape, sink, most_rows=factory.row_group_rows)

    def open(self, file: pa.NativeFile) -> Any:
        import pyarrow.parquet as pq  # a global import would load 5 MB into every process that writes files

        return pq.ParquetWriter(file, self._shape.schema, compression=self._compression)

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(table, self._most_rows)


class CsvWriterFactory(ColumnsWriterFactory):
    """A factory of CSV writers for the declared fields, in their order. `CsvEncoder` writes rows to parts that may stay open."""

    suffix = ".csv"

    def __init__(
        self, fields: Declaration, dialect: CsvDialect | None = None, types: Sequence[TypeInformation] | None = None
    ) -> None:
        self.shape = RecordShape.of(fields)
        dialect, separators = dialect or CsvDialect(), {}
        for column in self.shape.schema:
            if pa.types.is_list(column.type):
                separators[column.name] = dialect.array_separators.get(column.name, ";")
            elif pa.types.is_nested(column.type):
                raise InvalidJob(
                    f"CSV field {column.name!r} cannot be {column.type}", remedy="use JSON lines or Parquet"
                )
        self.dialect = replace(dialect, array_separators=separators)
        self.types = types

    def create(self, sink: ByteSink) -> BulkWriter:
        return CsvFileWriter(self.shape, CsvEncoder(self.shape.declared_fields, self.dialect, self.types), sink)


class CsvFileWriter(BulkWriter):
    buffered_bytes = 0

    def __init__(self, shape: RecordShape, encoder: CsvEncoder, sink: ByteSink) -> None:
        self._shape = shape
        self._encoder = encoder
        self._sink = sink
        sink.write(encoder.header())

    def add(self, values: Sequence[Any]) -> None:
        self._sink.write(self._encoder.encode_batch(values))

    def add_columns(self, batch: ColumnBatch) -> None:
        self.add(rows_as_tuples(declared_columns(batch, self._shape.declared_fields)))

    def finish(self) -> None: ...


class _FileLike:
    """The methods of a Python file that Arrow needs to write to it."""

    closed = False

    def __init__(self, sink: ByteSink) -> None:
        self._sink: ByteSink | None = sink
        self._written = 0

    def discard(self) -> None:
        """Ignore all later writes."""
        self._sink = None

    def write(self, data: Any) -> int:
        content = bytes(data)
        if self._sink is not None:
            self._sink.write(content)
        self._written += len(content)
        return len(content)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def columns_of(values: Sequence[Any], shape: RecordShape) -> pa.RecordBatch:
    """Return the columns of records to write. `DeclaredFields` defines how their fields are found.

    Raises:
        RecordFormatError: a record has other fields, or a value does not fit its field. The error names the record or the field.
    """
    try:
        lists = shape.declared_fields.lists(values)
    except FieldMismatch as error:
        raise RecordFormatError(
            f"record {error.record!r} cannot be written with the declared fields: {error}",
            remedy="map records to tuples, dicts or objects with exactly these fields",
        ) from error
    writers = zip(lists, shape.nested_writers, strict=True)
    return _as_arrays([column if write is None else map(write, column) for column, write in writers], shape)


def columns_of_read(values: Sequence[Any], shape: RecordShape) -> pa.RecordBatch:
    """Return the columns of records from a database. Tuples are read by position, dicts by name.

    A dict may have more or fewer fields.

    Raises:
        RecordFormatError: a value does not fit its field. The error names the field.
    """
    if values and isinstance(values[0], dict):
        lists: list[Any] = [[value.get(name) for value in values] for name in shape.names]
    else:
        lists = list(zip(*values, strict=True)) or [()] * len(shape.names)
    return _as_arrays(lists, shape)


def _as_arrays(lists: Sequence[Iterable[Any]], shape: RecordShape) -> pa.RecordBatch:
    schema = shape.schema
    arrays = []
    for column, field in zip(lists, schema, strict=True):
        try:
            arrays.append(pa.array(column, field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise RecordFormatError(
                f"values of field {field.name!r} cannot be written as {field.type}: {error}",
                remedy="give the field the type its values have, or convert them before the sink",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
