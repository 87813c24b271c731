"""ORC files, read and written in columns, one stripe at a time.

A position is a stripe and a row in it. A reader does not touch earlier stripes, and decodes the stripe of its position again.
One subtask reads a whole file, because Arrow does not report where stripes begin. A stripe is in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.connectors.core.source import ReadBounds, SplitReader
from penstock.connectors.formats.bulk import BulkWriter, ByteSink, ColumnsFileWriter, ColumnsWriterFactory
from penstock.connectors.formats.columns.column_format import ColumnFormat
from penstock.connectors.formats.columns.declared_columns import columns_in, shape_in, shaped
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.records.batch import ColumnBatch

if TYPE_CHECKING:
    import pyarrow.orc

_COMPRESSIONS = ("snappy", "zstd", "zlib", "lz4", "none")
_STRIPE_BYTES = 64 << 20
_MOST_ROWS = 1_000_000


class OrcFormat(ColumnFormat):
    """A format that reads the declared columns of ORC files. If no columns are declared, it reads all columns as dicts.

    Args:
        fields: the columns, their types and the record type (see `formats.shape`). A column of another type is cast if no value
            is lost.
        record: another form for the same fields: "tuple", "dict" or "row".
        case_sensitive: whether the names of columns must match in case.
    """

    def __init__(self, fields: Declaration = None, *, record: str | None = None, case_sensitive: bool = True) -> None:
        super().__init__(fields, record, case_sensitive=case_sensitive)

    @property
    def splittable(self) -> bool:
        return False

    def open(self, path: str, file: Any, start: int, end: int, position: Any) -> SplitReader:
        import pyarrow.orc as orc

        try:
            return OrcReader(self, path, orc.ORCFile(pa.PythonFile(file, "r")), position)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(path, error) from error


class OrcReader(SplitReader):
    def __init__(self, format: OrcFormat, path: str, file: pyarrow.orc.ORCFile, position: Any) -> None:
        self._path = path
        self._file = file
        self._shape = format.shape or RecordShape.of(file.schema, format.record)
        self._columns = columns_in(file.schema, self._shape, path, case_sensitive=format.case_sensitive)
        self._shape = shape_in(file.schema, self._shape, self._columns)
        stripe, row = (0, 0) if position is None else position
        self._stripe: int = stripe
        self._row: int = row
        self._rest: pa.RecordBatch | None = None

    def read(self, bounds: ReadBounds) -> ColumnBatch | None:
        rest = self._rest if self._rest is not None else self._decoded()
        if rest is None:
            return None
        limit = max(1, bounds.max_records)
        if rest.nbytes > bounds.max_bytes:
            limit = max(1, min(limit, rest.num_rows * bounds.max_bytes // rest.nbytes))
        part = rest.slice(0, limit)
        self._rest = rest.slice(limit) if rest.num_rows > limit else None
        self._row += part.num_rows
        if self._rest is None:
            self._stripe, self._row = self._stripe + 1, 0
        return ColumnBatch(part, None, self._shape.maker)

    def _decoded(self) -> pa.RecordBatch | None:
        """Return the rest of the current stripe, or the next stripe that has rows, or None at the end."""
        while self._stripe < self._file.nstripes:
            try:
                batch = self._file.read_stripe(self._stripe, [name for name, _ in self._columns])
                batch = shaped(batch.slice(self._row), self._columns, self._shape, self._path, f"stripe {self._stripe}")
            except (pa.ArrowException, OSError) as error:
                raise _unreadable(self._path, error, f", stripe {self._stripe}") from error
            if batch.num_rows:
                return batch
            self._stripe, self._row = self._stripe + 1, 0
        return None

    @property
    def position(self) -> Any:
        return [self._stripe, self._row]

    @property
    def finished(self) -> bool:
        return self._rest is None and self._stripe >= self._file.nstripes

    def close(self) -> None:
        self._rest = None


def _unreadable(path: str, error: Exception, where: str = "") -> RecordFormatError:
    return RecordFormatError(
        f"cannot read the ORC file {path!r}{where}: {error}",
        remedy="the file is damaged, is not ORC, or does not have the declared types; remove or correct it",
    )


class OrcWriterFactory(ColumnsWriterFactory):
    """A factory of ORC writers.

    Args:
        fields: the columns (see `formats.shape`). Rows must have these fields, and columns are cast to their types.
        compression: "snappy", "zstd", "zlib", "lz4" or "none".
        stripe_bytes: approximate bytes of a stripe.
    """

    suffix = ".orc"

    def __init__(self, fields: Declaration, *, compression: str = "zstd", stripe_bytes: int = _STRIPE_BYTES) -> None:
        self.shape = RecordShape.of(fields)
        assert self.shape.schema
        if compression not in _COMPRESSIONS:
            raise InvalidJob(
                f"ORC does not support compression={compression!r}", remedy=f"give one of {', '.join(_COMPRESSIONS)}"
            )
        self.compression = compression
        self.stripe_bytes = stripe_bytes

    @staticmethod
    def by_properties(fields: Declaration, properties: Mapping[str, Any]) -> OrcWriterFactory:
        """Return a factory for ORC's own property names: `orc.compress` and `orc.stripe.size`.

        Raises:
            InvalidJob: a property is unknown, or its value is invalid.
        """
        unknown = sorted(set(properties) - {"orc.compress", "orc.stripe.size"})
        if unknown:
            raise InvalidJob(
                f"ORC writers do not support the properties {', '.join(unknown)}",
                remedy="set only orc.compress and orc.stripe.size",
            )
        size = str(properties.get("orc.stripe.size", _STRIPE_BYTES))
        if not size.isdigit() or int(size) < 1:
            raise InvalidJob(f"orc.stripe.size={size!r} is not a positive number", remedy="give a number of bytes")
        compression = str(properties.get("orc.compress", "ZLIB" if properties else "zstd")).lower()
        return OrcWriterFactory(fields, compression=compression, stripe_bytes=int(size))

    def create(self, sink: ByteSink) -> BulkWriter:
        return OrcFileWriter(self, sink)


class OrcFileWriter(ColumnsFileWriter):
    def __init__(self, factory: OrcWriterFactory, sink: ByteSink) -> None:
        self._factory = factory
        super().__init__(factory.shape, sink, most_rows=_MOST_ROWS, most_bytes=factory.stripe_bytes)

    def open(self, file: pa.NativeFile) -> Any:
        import pyarrow.orc as orc

        factory = self._factory
        compression = "uncompressed" if factory.compression == "none" else factory.compression
        return orc.ORCWriter(file, compression=compression, stripe_size=factory.stripe_bytes)

    def write_table(self, table: pa.Table) -> None:
        try:
            self._writer.write(table)
        except pa.ArrowException as error:
            raise RecordFormatError(
                f"columns {table.schema.names} cannot be written as ORC: {error}",
                remedy="declare types that ORC supports: it has no unsigned numbers, times of day or durations",
            ) from error
