"""Writers of a subtask that writes into tables. They buffer rows as columns.

For exactly once, a subtask has a `StagingWriter`, and the JobManager writes the rows. For at least once, the subtask has a `DirectWriter`
and writes the rows itself.
"""

from __future__ import annotations

import secrets
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from penstock.common.errors import PlatformError, SinkError
from penstock.common.types import Row, RowKind
from penstock.connectors.core.batching import BatchingWriter
from penstock.connectors.core.sink import SinkWriter, StagedCommittable
from penstock.connectors.formats.bulk import columns_of
from penstock.connectors.formats.columns.declared_columns import declared_columns
from penstock.connectors.formats.shape import RecordShape
from penstock.connectors.lakehouse.fields import as_columns
from penstock.connectors.spark.staged import to_ipc
from penstock.connectors.tables.server import Reconnecting, pauses
from penstock.records.batch import Batch, ColumnBatch

if TYPE_CHECKING:
    from penstock.connectors.tables.settings import TableSinkSettings

GONE = "penstock_gone"
"""Name of an extra column of buffered rows. It is true if the row with this key must be deleted."""


class RowSink(Protocol):
    """The settings of a sink that its writers need."""

    shape: RecordShape
    deletes: bool
    """Whether records are `Row`s whose kind says if they insert, update or delete."""


class RowsWriter(SinkWriter):
    """A writer that buffers rows as columns."""

    def __init__(self, sink: RowSink) -> None:
        self._shape = sink.shape
        self._deletes = sink.deletes
        self._buffered: list[pa.RecordBatch] = []
        self._rows = 0

    def write_batch(self, batch: Batch, watermark: int) -> None:
        if isinstance(batch, ColumnBatch):
            columns = as_columns(declared_columns(batch, self._shape.declared_fields), self._shape.schema)
            self._buffer(_marked(columns, [False] * columns.num_rows) if self._deletes else columns)
        else:
            self.write(batch.values, batch.timestamps, watermark)

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        if self._deletes:
            kinds = [value.get_row_kind() if isinstance(value, Row) else RowKind.INSERT for value in values]
            pairs = zip(values, kinds, strict=True)
            values = [value for value, kind in pairs if kind is not RowKind.UPDATE_BEFORE]
            gone = [kind is RowKind.DELETE for kind in kinds if kind is not RowKind.UPDATE_BEFORE]
            if values:
                self._buffer(_marked(columns_of(values, self._shape), gone))
        elif values:
            self._buffer(columns_of(values, self._shape))

    def _buffer(self, columns: pa.RecordBatch) -> None:
        self._buffered.append(columns)
        self._rows += columns.num_rows

    def _drain(self) -> list[pa.RecordBatch]:
        batches, self._buffered, self._rows = self._buffered, [], 0
        return batches


def _marked(columns: pa.RecordBatch, gone: list[bool]) -> pa.RecordBatch:
    names = [*columns.schema.names, GONE]
    return pa.RecordBatch.from_arrays([*columns.columns, pa.array(gone, pa.bool_())], names=names)


class StagingWriter(RowsWriter):
    """A writer whose committables contain the rows.

    Args:
        prepared: a function from columns to the columns to buffer. It raises an error if the database cannot store a value. The job then
            fails before the value is part of a checkpoint.
    """

    def __init__(
        self, sink: RowSink, app: str, subtask: int, prepared: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    ) -> None:
        super().__init__(sink)
        self._app = app
        self._subtask = subtask
        self._prepared = prepared

    def _buffer(self, columns: pa.RecordBatch) -> None:
        super()._buffer(columns if self._prepared is None else self._prepared(columns))

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        batches = self._drain()
        if not batches:
            return []
        about = {
            "app": self._app,
            "checkpoint": checkpoint_id,
            "subtask": self._subtask,
            "id": secrets.token_hex(8),
            "at": int(time.time() * 1000),
        }
        return [StagedCommittable(about, lambda: to_ipc(pa.Table.from_batches(batches)))]


class DirectWriter(Reconnecting, RowsWriter, BatchingWriter):
    """A writer that writes rows when the buffer is full, after the sink's `batch_time`, and at every checkpoint barrier."""

    def __init__(self, sink: TableSinkSettings) -> None:
        Reconnecting.__init__(self, sink.server, SinkError)
        RowsWriter.__init__(self, sink)
        BatchingWriter.__init__(self, sink.batch_ms)
        self._settings = sink

    @property
    def holds(self) -> bool:
        return bool(self._rows)

    def _buffer(self, columns: pa.RecordBatch) -> None:
        super()._buffer(self._settings.prepared(columns))
        if self._rows >= self._settings.batch_rows:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows, and retry while the server is lost.

        Raises:
            SinkError: the server is lost for longer than `patience_s`, or refuses a row.
        """
        batches = self._drain()
        if batches:
            retries = pauses(self._server.patience_s)
            self._retried(
                lambda: self._write(batches), lambda error, lost: self._failed(error, batches, lost=lost), retries
            )

    def _failed(self, error: Exception, batches: list[pa.RecordBatch], *, lost: bool) -> PlatformError:
        row = "" if lost else self._refused(batches)
        problem = f"rows cannot be written to {self._settings.table!r}" + (row and f", such as {row}")
        return self._server.explained(SinkError, problem, error)

    @abstractmethod
    def _write(self, batches: list[pa.RecordBatch]) -> None:
        """Write the rows in one transaction."""

    def _refused(self, batches: list[pa.RecordBatch]) -> str:
        """Return the row that the server refuses, as text. Return "" if the server's message already names the row."""
        return ""
