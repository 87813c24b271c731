"""Files that are written as a whole: Parquet, from rows or from columns.

A bulk writer holds records back until a row group is worth writing; `finish` writes the rest and the footer. Such a file
cannot be cut and continued, so it ends at every checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from penstock.common.errors import RecordFormatError
from penstock.common.serialization import BulkWriterFactory
from penstock.common.types import Row
from penstock.connectors.formats.arrow_types import fields_of_class
from penstock.connectors.formats.csv import CsvDialect
from penstock.connectors.formats.encode import CsvEncoder
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.records.columns import rows_as_tuples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.common.typeinfo import TypeInformation

_GROUP_BYTES = 32 << 20


class ByteSink(Protocol):
    def write(self, data: bytes) -> None: ...


class BulkWriter(ABC):
    """Writes one file."""

    @abstractmethod
    def add(self, values: Sequence[Any]) -> None: ...

    @abstractmethod
    def add_columns(self, columns: pa.RecordBatch) -> None: ...

    @property
    @abstractmethod
    def held_back(self) -> int:
        """Bytes not yet written, about."""

    @abstractmethod
    def finish(self) -> None:
        """Write the rest. The sink is not closed."""

    def discard(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Nobody wants the file: write nothing more, let go of everything."""


class ColumnsWriterFactory(BulkWriterFactory):
    """Makes bulk writers of files with columns."""

    suffix = ""

    @abstractmethod
    def create(self, sink: ByteSink) -> BulkWriter: ...


class ParquetWriterFactory(ColumnsWriterFactory):
    """Writes Parquet.

    Args:
        fields: the columns (see `formats.shape`); rows must have these fields, columns are cast to their types.
        compression: of pages: "snappy", "zstd", "gzip" or "none".
        row_group_rows: rows of a row group at most.
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
    """Holds columns until they are worth a group of rows.

    Args:
        most_rows: of a group.
        most_bytes: the same, about.
    """

    def __init__(self, shape: RecordShape, sink: ByteSink, *, most_rows: int, most_bytes: int = _GROUP_BYTES) -> None:
        self._shape = shape
        self._most_rows, self._most_bytes = most_rows, most_bytes
        self._held: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._file = _FileLike(sink)
        self._writer: Any = self.open(pa.PythonFile(self._file, "w"))

    @abstractmethod
    def open(self, file: pa.NativeFile) -> Any:
        """Arrow's writer of the format, which has `close`."""

    @abstractmethod
    def write_table(self, table: pa.Table) -> None: ...

    def add(self, values: Sequence[Any]) -> None:
        self._hold(columns_of(values, self._shape))

    def add_columns(self, columns: pa.RecordBatch) -> None:
        schema = self._shape.schema
        try:
            arrays = [columns.column(field.name).cast(field.type) for field in schema]
        except (KeyError, pa.ArrowException) as error:
            raise RecordFormatError(
                f"columns {columns.schema.names} cannot be written as {schema.names}: {error}",
                remedy="give the stream the fields and types the sink declares",
            ) from error
        self._hold(pa.RecordBatch.from_arrays(arrays, schema=schema))

    def _hold(self, columns: pa.RecordBatch) -> None:
        self._held.append(columns)
        self._rows += columns.num_rows
        self._bytes += columns.nbytes
        if self._bytes >= self._most_bytes or self._rows >= self._most_rows:
            self._write_group()

    def _write_group(self) -> None:
        if self._held:
            self.write_table(pa.Table.from_batches(self._held))
        self._held, self._rows, self._bytes = [], 0, 0

    @property
    def held_back(self) -> int:
        return self._bytes

    def finish(self) -> None:
        try:
            self._write_group()
            self._writer.close()
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        self._held = []
        self._file.discard()
        try:
            # Else Arrow would write the footer when the writer is collected, into a part that is gone.
            self._writer.close()
        except pa.ArrowException:
            return


class ParquetFileWriter(ColumnsFileWriter):
    def __init__(self, factory: ParquetWriterFactory, sink: ByteSink) -> None:
        self._compression = factory.compression
        super().__init__(factory.shape, sink, most_rows=factory.row_group_rows)

    def open(self, file: pa.NativeFile) -> Any:
        import pyarrow.parquet as pq  # 5 MB of libraries, in every process that writes files of any format

        return pq.ParquetWriter(file, self._shape.schema, compression=self._compression)

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(table, self._most_rows)


class CsvWriterFactory(ColumnsWriterFactory):
    """Writes CSV of the declared fields, in their order; for rows see also `CsvEncoder`, whose parts may stay open."""

    suffix = ".csv"

    def __init__(
        self, fields: Declaration, dialect: CsvDialect | None = None, types: Sequence[TypeInformation] | None = None
    ) -> None:
        self.shape = RecordShape.of(fields)
        self.dialect = dialect or CsvDialect()
        self.types = types

    def create(self, sink: ByteSink) -> BulkWriter:
        return CsvFileWriter(CsvEncoder(self.shape.names, self.dialect, self.types), sink)


class CsvFileWriter(BulkWriter):
    held_back = 0

    def __init__(self, encoder: CsvEncoder, sink: ByteSink) -> None:
        self._encoder = encoder
        self._sink = sink
        sink.write(encoder.header())

    def add(self, values: Sequence[Any]) -> None:
        self._sink.write(self._encoder.encode_batch(values))

    def add_columns(self, columns: pa.RecordBatch) -> None:
        self.add(rows_as_tuples(columns))

    def finish(self) -> None: ...


class _FileLike:
    """What Arrow needs of a Python file to write to it."""

    closed = False

    def __init__(self, sink: ByteSink) -> None:
        self._sink: ByteSink | None = sink
        self._written = 0

    def discard(self) -> None:
        """Take what comes and write it nowhere."""
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
    """Rows of any form as columns: tuples, lists and Rows by position, dicts and objects by name.

    Raises:
        RecordFormatError: a value does not fit its field; names both.
    """
    schema = shape.schema
    names = schema.names
    first = values[0] if values else ()
    try:
        if isinstance(first, dict):
            lists: list[Any] = [[value.get(name) for value in values] for name in names]
        elif isinstance(first, tuple | list | Row):
            lists = list(zip(*values, strict=True)) or [()] * len(names)
        else:
            lists = [list(map(attrgetter(name), values)) for name in names]
    except (AttributeError, ValueError, TypeError) as error:
        raise _no_fit(error, first, names) from error
    if len(lists) != len(names):
        raise _no_fit(f"{len(lists)} fields", first, names)
    arrays = []
    for column, field in zip(lists, schema, strict=True):
        try:
            arrays.append(
                pa.array(map(_without_rows, column) if pa.types.is_nested(field.type) else column, field.type)
            )
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise RecordFormatError(
                f"values of field {field.name!r} cannot be written as {field.type}: {error}",
                remedy="give the field the type its values have, or convert them before the sink",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _no_fit(why: object, value: Any, names: Sequence[str]) -> RecordFormatError:
    return RecordFormatError(
        f"record {value!r} cannot be written with the fields {', '.join(names)}: {why}",
        remedy="map records to tuples, dicts or objects with these fields",
    )


def _without_rows(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict(recursive=True)
    if isinstance(value, list):
        return [_without_rows(item) for item in value]
    if isinstance(value, tuple | dict):
        return value
    cls: Any = type(value)
    fields = fields_of_class(cls)  # a dataclass or a Struct, which Arrow does not look into
    return value if fields is None else {name: _without_rows(getattr(value, name)) for name in fields}
