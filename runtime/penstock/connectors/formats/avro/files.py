"""Avro's container files. A position is the offset of a block and the number of a record in the block. A reader does not read earlier blocks
again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from penstock.common.errors import RecordFormatError
from penstock.connectors.core.source import ReadBounds, SplitReader
from penstock.connectors.formats.avro.defaults import own_defaults
from penstock.connectors.formats.avro.exactness import check_of
from penstock.connectors.formats.avro.schema import AvroSchema, fastavro, is_recursive, row_type, to_dicts, to_rows
from penstock.connectors.formats.bulk import BulkWriter, ByteSink, ColumnsWriterFactory
from penstock.connectors.formats.record_format import BulkFormat
from penstock.records.batch import RowBatch

if TYPE_CHECKING:
    from penstock.records.batch import ColumnBatch

_BLOCK_BYTES = 64 << 10


class AvroFormat(BulkFormat):
    """A format that reads container files as dicts, or as Rows.

    Args:
        schema: the reader's schema; None means the schema in each file.
        record: "dict", or "row", which needs a schema.
    """

    def __init__(self, schema: AvroSchema | None = None, *, record: str = "dict") -> None:
        super().__init__()
        self.schema = schema
        self.record = record
        self._type = row_type(schema) if record == "row" and schema is not None else None

    @property
    def splittable(self) -> bool:
        return False

    def produced_type(self) -> Any:
        return self._type

    def open(self, path: str, file: Any, start: int, end: int, position: Any) -> SplitReader:
        return AvroReader(self, path, file, position)


class AvroReader(SplitReader):
    """A reader of one file."""

    def __init__(self, format: AvroFormat, path: str, file: Any, position: Any) -> None:
        schema = None if format.schema is None else format.schema.parsed
        self._path = path
        self._file = file
        self._own_defaults = None if schema is None else own_defaults(schema)
        self._convert = to_rows(schema) if format.record == "row" else None
        self._finished = False
        try:
            self._blocks = _blocks_of(file, schema)
        except Exception as error:  # damaged bytes make fastavro raise any kind of error
            raise self._unreadable(error) from error
        offset: int
        self._skip: int
        offset, self._skip = (file.tell(), 0) if position is None else position
        self._position = [offset, self._skip]
        file.seek(offset)
        self._records: Iterator[Any] | None = None
        self._next = offset
        self._bytes_each = 1

    def read(self, bounds: ReadBounds) -> RowBatch | None:
        try:
            while not self._finished:
                if self._records is None and not self._open_block():
                    return None
                assert self._records is not None
                most = max(1, min(bounds.max_records, bounds.max_bytes // self._bytes_each))
                values = list(islice(self._records, most))
                if len(values) < most:
                    self._records, self._position = None, [self._next, 0]
                else:
                    self._position = [self._position[0], self._position[1] + len(values)]
                if self._own_defaults is not None:
                    for value in values:
                        self._own_defaults(value)
                if values:
                    return RowBatch(values if self._convert is None else list(map(self._convert, values)))
        except Exception as error:
            raise self._unreadable(error) from error
        return None

    def _open_block(self) -> bool:
        block = next(self._blocks, None)
        if block is None:
            self._finished = True
            return False
        self._next = self._position[0] + block.size
        self._bytes_each = max(1, block.size // max(1, block.num_records))
        self._records = iter(block)
        for _ in islice(self._records, self._skip):
            pass
        self._skip = 0
        return True

    def _unreadable(self, error: Exception) -> RecordFormatError:
        return RecordFormatError(
            f"cannot read the Avro file {self._path!r}: {type(error).__name__}: {error}",
            remedy="the file is damaged, not an Avro container file, or does not fit the schema; remove or correct it",
        )

    @property
    def position(self) -> Any:
        return self._position

    @property
    def finished(self) -> bool:
        return self._finished

    def close(self) -> None:
        self._file.close()


def _blocks_of(file: Any, schema: Any) -> Any:
    """Return the reader of a file's blocks.

    Records of a recursive schema are read by fastavro's Python code, which limits the depth. The C extension does not: deep records
    would overflow the stack and crash the process.
    """
    begin = file.tell()
    blocks = fastavro().block_reader(file, schema)
    if not is_recursive(blocks.writer_schema):
        return blocks
    file.seek(begin)
    return fastavro("fastavro._read_py").block_reader(file, schema)


class AvroWriterFactory(ColumnsWriterFactory):
    """A factory of writers of container files.

    Args:
        compression: "null", "deflate" or "bzip2". Other codecs need additional packages.
    """

    suffix = ".avro"

    def __init__(self, schema: AvroSchema, *, compression: str = "deflate") -> None:
        self.schema = schema
        self.compression = compression

    def create(self, sink: ByteSink) -> BulkWriter:
        return AvroFileWriter(self, sink)


class AvroFileWriter(BulkWriter):
    buffered_bytes = 0
    """The writer reports 0 bytes, because it buffers less than a block."""

    def __init__(self, factory: AvroWriterFactory, sink: ByteSink) -> None:
        self._convert = to_dicts(factory.schema.parsed)
        self._check = check_of(factory.schema.parsed)
        self._sink = sink
        writer = fastavro("fastavro.write").Writer
        self._writer = writer(
            *(_FileLike(sink), factory.schema.parsed, factory.compression, _BLOCK_BYTES),
            options={"strict_allow_default": True},
        )

    def add(self, values: Sequence[Any]) -> None:
        for value in values:
            try:
                record = value if self._convert is None else self._convert(value)
                if self._check is not None:
                    self._check(record)
                self._writer.write(record)
            except Exception as error:
                raise RecordFormatError(
                    f"{str(value)[:200]} does not fit the Avro schema: {type(error).__name__}: {error}",
                    remedy="write records with the schema's fields and types",
                ) from error

    def add_columns(self, batch: ColumnBatch) -> None:
        self.add(batch.rows().values)

    def finish(self) -> None:
        self._writer.flush()


class _FileLike:
    def __init__(self, sink: ByteSink) -> None:
        self.write = sink.write

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        """Do nothing, because `write` already passes all bytes to the sink."""
