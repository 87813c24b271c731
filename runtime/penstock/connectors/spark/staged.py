"""Staged files: rows of a DataFrame as a compressed Arrow stream, under `shared/` of the job's checkpoints."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.checkpoint.files.codec import STAGED_FILE
from penstock.connectors.core.source import ReadBounds, SplitReader
from penstock.records.batch import ColumnBatch
from penstock.records.columns import rows_as_rows
from penstock.state.files import FileRef

if TYPE_CHECKING:
    from penstock.checkpoint.files.state_files import StateFileReader
    from penstock.checkpoint.files.storage import CheckpointStorage
    from penstock.connectors.core.sink import CommitEnvironment
    from penstock.connectors.file.source.open_files import OpenFiles

FILE_BYTES = 16 * 1024 * 1024
"""Size in uncompressed bytes at which a file ends. A reader holds one file in memory."""
FILES_SCHEMA = "path string, size long, checksum string, rows long"
_FILES = pa.schema([("path", pa.string()), ("size", pa.int64()), ("checksum", pa.string()), ("rows", pa.int64())])


def to_ipc(table: pa.Table) -> bytes:
    """Return a table as a compressed Arrow stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(out.getvalue())


def from_ipc(data: bytes) -> pa.Table:
    """Return the table that `to_ipc` encoded."""
    return pa.ipc.open_stream(data).read_all()


def file_ref(file: dict[str, Any]) -> FileRef:
    return FileRef(file["path"], int(file["size"]), file["checksum"])


def content_of(piece: dict[str, Any], environment: CommitEnvironment | None) -> bytes:
    """Return the content of a `StagedCommittable` from its manifest entry. An entry without a file needs no environment."""
    file = piece.get(STAGED_FILE)
    if file is None:
        return base64.b64decode(piece["content"])
    assert environment is not None
    return environment.files.read(file_ref(file))


class StageRows:
    """A function for `mapInArrow`: it writes the rows of a partition and yields one row per file (`FILES_SCHEMA`).

    Args:
        storage: the job's checkpoint folder.
        prefix: a unique prefix of the files' names.
    """

    def __init__(self, storage: CheckpointStorage, prefix: str) -> None:
        self._storage = storage
        self._prefix = prefix

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        pending: list[pa.RecordBatch] = []
        count = 0
        for batch in batches:
            if batch.num_rows:
                pending.append(batch)
            if sum(b.nbytes for b in pending) >= FILE_BYTES:
                yield self._write(pending, f"{self._prefix}{partition}-{count}")
                pending = []
                count += 1
        if pending:
            yield self._write(pending, f"{self._prefix}{partition}-{count}")

    def _write(self, batches: list[pa.RecordBatch], path: str) -> pa.RecordBatch:
        table = pa.Table.from_batches(batches)
        ref = self._storage.writer().write(to_ipc(table), path)
        return pa.RecordBatch.from_pydict(
            {"path": [ref.path], "size": [ref.size], "checksum": [ref.checksum], "rows": [table.num_rows]}, _FILES
        )


class StagedReader(SplitReader):
    """A reader of one staged file, whose rows are in memory while it reads. A position is the number of rows that were read.

    Args:
        count: the number of the file's rows.
        open_files: tracks which files are in memory.
    """

    def __init__(
        self, files: StateFileReader, file: dict[str, Any], count: int, open_files: OpenFiles, position: Any
    ) -> None:
        self._files = files
        self._file = file
        self._count = count
        self._open_files = open_files
        self._rows: pa.Table | None = None
        self._next = 0 if position is None else int(position)

    def read(self, bounds: ReadBounds) -> ColumnBatch | None:
        rest = self._count - self._next
        if not rest:
            return None
        self._open_files.use(self)
        if self._rows is None:
            self._rows = from_ipc(self._files.read(file_ref(self._file))).combine_chunks()
        fits = max(1, self._count * bounds.max_bytes // max(1, self._rows.nbytes))
        part = self._rows.slice(self._next, max(1, min(rest, bounds.max_records, fits)))
        self._next += part.num_rows
        # One chunk per column results in one batch. An empty table has no batch.
        columns = part.to_batches()
        batch = columns[0] if columns else pa.RecordBatch.from_pydict({})
        return ColumnBatch(batch, None, rows_as_rows)

    @property
    def position(self) -> int:
        return self._next

    @property
    def finished(self) -> bool:
        return self._next >= self._count

    def lag(self) -> int:
        return self._count - self._next

    def release(self) -> None:
        self._rows = None

    def close(self) -> None:
        self._open_files.close(self)
