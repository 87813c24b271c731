"""What a sink's subtask does: Parquet files of the rows since the last barrier, that no table names yet."""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.formats.bulk import columns_of
from penstock.connectors.lakehouse.fields import as_columns
from penstock.connectors.lakehouse.partitions import Key
from penstock.connectors.sink import SinkWriter
from penstock.records.batch import Batch, ColumnBatch

if TYPE_CHECKING:
    from penstock.connectors.formats.shape import RecordShape

FILE_BYTES = 128 << 20
"""Of a file, about, unless a sink says otherwise."""
_GROUP_BYTES = 16 << 20
_GROUP_ROWS = 1_000_000
_MOST_OPEN = 64


class TableTarget(ABC):
    """Where a subtask's files go, and what the table's log needs to know of each."""

    schema: pa.Schema
    """Of the rows, with the table's types."""
    file_schema: pa.Schema
    """Of the columns that are in the files."""

    @abstractmethod
    def partition(self, rows: pa.RecordBatch) -> Iterable[tuple[Key, pa.RecordBatch]]:
        """Rows by partition, with the columns of `file_schema`."""

    @abstractmethod
    def create(self, key: Key, name: str) -> tuple[str, Any]:
        """A file for a partition: its path, and an open binary file that whoever writes it closes."""

    @abstractmethod
    def describe(self, key: Key, path: str, size: int, metadata: pq.FileMetaData) -> dict[str, Any]:
        """What the log needs to know, JSON-able. It has a `path`."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """A file that no log names; it may be gone."""


class TableWriter(SinkWriter):
    """
    Args:
        app: who writes, as the table's log names it.
        shape: of records that are no columns; None: there are none.
        prefix: what names of files begin with.
    """

    def __init__(self, target: TableTarget, app: str, shape: RecordShape | None, prefix: str, file_bytes: int) -> None:
        self._target = target
        self._app = app
        self._shape = shape
        self._prefix = prefix
        self._file_bytes = file_bytes
        self._open: dict[Key, _TableFile] = {}
        self._done: list[dict[str, Any]] = []
        self._count = 0

    def write_batch(self, batch: Batch, watermark: int) -> None:
        if isinstance(batch, ColumnBatch):
            self.write_columns(batch.columns)
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
            self._open[key] = file  # the last one that was written to stands last
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
        self._done.append(self._target.describe(key, file.path, size, metadata))

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        for key in list(self._open):
            self._end(key)
        done, self._done = self._done, []
        return [{"app": self._app, "checkpoint": checkpoint_id, "files": done}] if done else []

    def close(self) -> None:
        """What was not voted for is nobody's: a restore writes its rows again."""
        for file in self._open.values():
            file.discard()
        paths = [file.path for file in self._open.values()] + [about["path"] for about in self._done]
        self._open, self._done = {}, []
        for path in paths:
            self._target.remove(path)


class _TableFile:
    """One file; holds rows back until a row group is worth writing."""

    def __init__(self, path: str, output: Any, schema: pa.Schema) -> None:
        self.path = path
        self._output = output
        self._schema = schema
        self._collected: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(output, schema, compression="zstd", metadata_collector=self._collected)
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = self._held_rows = 0

    @property
    def size(self) -> int:
        return int(self._output.tell()) + self._held_bytes

    def add(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        self._held_rows += rows.num_rows
        if self._held_bytes >= _GROUP_BYTES or self._held_rows >= _GROUP_ROWS:
            self._write_group()

    def _write_group(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, self._schema), _GROUP_ROWS)
        self._held, self._held_bytes, self._held_rows = [], 0, 0

    def finish(self) -> tuple[int, pq.FileMetaData]:
        """The file is durable: its size and footer."""
        self._write_group()
        self._writer.close()
        size = int(self._output.tell())
        self._output.close()
        return size, self._collected[0]

    def discard(self) -> None:
        self._held = []
        try:
            self._writer.close()
            self._output.close()
        except (pa.ArrowException, OSError, ValueError):
            return


class DurableFile:
    """A local file that is on the disk, with its name, once it is closed."""

    def __init__(self, path: str) -> None:
        directory = os.path.dirname(path)
        os.makedirs(directory, exist_ok=True)
        self._directory = directory
        self._file = open(path, "xb")  # noqa: SIM115 - whoever writes it closes it
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
