"""The work of a sink's subtask: it writes Parquet files of the rows since the last barrier. No table lists these files yet."""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.type_info.declared_fields import DeclaredFields
from penstock.connectors.core.sink import SinkWriter
from penstock.connectors.formats.bulk import columns_of
from penstock.connectors.formats.columns.declared_columns import declared_columns
from penstock.connectors.lakehouse.fields import as_columns
from penstock.connectors.lakehouse.partitions import Key
from penstock.records.batch import Batch, ColumnBatch

if TYPE_CHECKING:
    from penstock.connectors.formats.shape import RecordShape

FILE_BYTES = 128 << 20
"""Default size of a file in bytes, approximately."""
_GROUP_BYTES = 16 << 20
_GROUP_ROWS = 1_000_000
_MOST_OPEN = 64


class TableTarget(ABC):
    """The place where a subtask writes its files, and the maker of their entries for the table's log."""

    schema: pa.Schema
    """The schema of the rows, with the table's types."""
    file_schema: pa.Schema
    """The schema of the columns that are stored in the files."""

    @abstractmethod
    def partition(self, rows: pa.RecordBatch) -> Iterable[tuple[Key, pa.RecordBatch]]:
        """Yield rows by partition, with the columns of `file_schema`."""

    @abstractmethod
    def create(self, key: Key, name: str) -> tuple[str, Any]:
        """Create a file for a partition. Return its path and an open binary file, which the caller closes."""

    @abstractmethod
    def describe(self, key: Key, path: str, size: int, metadata: pq.FileMetaData) -> dict[str, Any]:
        """Return the entry that the log needs, as JSON values. It has a `path`."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file that no log lists. A missing file is not an error."""


class TableWriter(SinkWriter):
    """A writer that collects the rows between two barriers in Parquet files.

    Args:
        app: the writer's name in the table's log.
        shape: the shape of records that do not come as columns. None means that all records come as columns.
        prefix: the prefix of file names.
    """

    def __init__(self, target: TableTarget, app: str, shape: RecordShape | None, prefix: str, file_bytes: int) -> None:
        self._target = target
        self._app = app
        self._shape = shape
        self._fields = DeclaredFields(target.schema.names) if shape is None else shape.declared_fields
        self._prefix = prefix
        self._file_bytes = file_bytes
        self._open: dict[Key, _TableFile] = {}
        self._finished: list[dict[str, Any]] = []
        self._count = 0

    def write_batch(self, batch: Batch, watermark: int) -> None:
        if isinstance(batch, ColumnBatch):
            self.write_columns(declared_columns(batch, self._fields))
        else:
            self.write(batch.values, batch.timestamps, watermark)

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        if values:
            assert self._shape is not None
            self.write_columns(columns_of(values, self._shape))

    def write_columns(self, columns: pa.RecordBatch) -> None:
        if not columns.num_rows:
            return
        for key, rows in self._target.partition(as_columns(columns, self._target.schema)):
            file = self._open.pop(key, None) or self._begin(key)
            self._open[key] = file  # the dict's last file is the file that was written to last
            file.add(rows)
            if file.size >= self._file_bytes:
                self._end(key)

    def _begin(self, key: Key) -> _TableFile:
        if len(self._open) >= _MOST_OPEN:
            self._end(next(iter(self._open)))
        name = f"{self._prefix}-{self._count:05d}-{secrets.token_hex(8)}.parquet"
        self._count += 1
        path, output = self._target.create(key, name)
        return _TableFile(path, output, self._target.file_schema)

    def _end(self, key: Key) -> None:
        file = self._open.pop(key)
        size, metadata = file.finish()
        self._finished.append(self._target.describe(key, file.path, size, metadata))

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        for key in list(self._open):
            self._end(key)
        done, self._finished = self._finished, []
        return [{"app": self._app, "checkpoint": checkpoint_id, "files": done}] if done else []

    def close(self) -> None:
        """Discard files that no checkpoint contains. A restore writes their rows again."""
        for file in self._open.values():
            file.discard()
        paths = [file.path for file in self._open.values()] + [about["path"] for about in self._finished]
        self._open, self._finished = {}, []
        for path in paths:
            self._target.remove(path)


class _TableFile:
    """One file. It buffers rows until they fill a row group."""

    def __init__(self, path: str, output: Any, schema: pa.Schema) -> None:
        self.path = path
        self._output = output
        self._schema = schema
        self._collected: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(output, schema, compression="zstd", metadata_collector=self._collected)
        self._buffered: list[pa.RecordBatch] = []
        self._buffered_bytes = self._buffered_rows = 0

    @property
    def size(self) -> int:
        return int(self._output.tell()) + self._buffered_bytes

    def add(self, rows: pa.RecordBatch) -> None:
        self._buffered.append(rows)
        self._buffered_bytes += rows.nbytes
        self._buffered_rows += rows.num_rows
        if self._buffered_bytes >= _GROUP_BYTES or self._buffered_rows >= _GROUP_ROWS:
            self._write_group()

    def _write_group(self) -> None:
        if self._buffered:
            self._writer.write_table(pa.Table.from_batches(self._buffered, self._schema), _GROUP_ROWS)
        self._buffered, self._buffered_bytes, self._buffered_rows = [], 0, 0

    def finish(self) -> tuple[int, pq.FileMetaData]:
        """Make the file durable and return its size and footer."""
        self._write_group()
        self._writer.close()
        size = int(self._output.tell())
        self._output.close()
        return size, self._collected[0]

    def discard(self) -> None:
        self._buffered = []
        try:
            self._writer.close()
            self._output.close()
        except (pa.ArrowException, OSError, ValueError):
            return


class DurableFile:
    """A local file. After `close`, its content and its name are durable on the disk."""

    def __init__(self, path: str) -> None:
        directory = os.path.dirname(path)
        os.makedirs(directory, exist_ok=True)
        self._directory = directory
        self._file = open(path, "xb")  # noqa: SIM115 - the writer closes the file
        self.closed = False

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        entry = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(entry)
        finally:
            os.close(entry)
