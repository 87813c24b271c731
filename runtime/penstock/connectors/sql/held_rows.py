"""What a subtask of a sink into tables holds: rows as columns, for the JobManager (exactly once), or until they are written (at least once)."""

from __future__ import annotations

import secrets
import time
from abc import abstractmethod
from typing import Any, Protocol

import pyarrow as pa

from penstock.common.types import Row, RowKind
from penstock.connectors.formats.bulk import columns_of
from penstock.connectors.formats.shape import RecordShape
from penstock.connectors.lakehouse.fields import as_columns
from penstock.connectors.sink import SinkWriter, StagedCommittable
from penstock.connectors.spark.staged import to_ipc
from penstock.records.batch import Batch, ColumnBatch

GONE = "penstock_gone"
"""A column of rows that are held: whether the row with this key is to be deleted."""


class TableSink(Protocol):
    """What writers need to know of their sink. `deletes`: records are `Row`s whose kind counts."""

    shape: RecordShape
    deletes: bool
    batch_rows: int
    batch_ms: int


class RowsWriter(SinkWriter):
    """Holds rows as columns."""

    def __init__(self, sink: TableSink) -> None:
        self._about = sink
        self._held: list[pa.RecordBatch] = []
        self._rows = 0

    def write_batch(self, batch: Batch, watermark: int) -> None:
        if isinstance(batch, ColumnBatch):
            columns = as_columns(batch.columns, self._about.shape.schema)
            self._hold(_marked(columns, [False] * columns.num_rows) if self._about.deletes else columns)
        else:
            self.write(batch.values, batch.timestamps, watermark)

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        if self._about.deletes:
            kinds = [value.get_row_kind() if isinstance(value, Row) else RowKind.INSERT for value in values]
            pairs = zip(values, kinds, strict=True)
            values = [value for value, kind in pairs if kind is not RowKind.UPDATE_BEFORE]
            gone = [kind is RowKind.DELETE for kind in kinds if kind is not RowKind.UPDATE_BEFORE]
            if values:
                self._hold(_marked(columns_of(values, self._about.shape), gone))
        elif values:
            self._hold(columns_of(values, self._about.shape))

    def _hold(self, columns: pa.RecordBatch) -> None:
        self._held.append(self._fitted(columns))
        self._rows += columns.num_rows

    def _fitted(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """As rows are held; raises if the database would not take a value, before it waits for a commit."""
        return columns

    def _take(self) -> list[pa.RecordBatch]:
        held, self._held, self._rows = self._held, [], 0
        return held


def _marked(columns: pa.RecordBatch, gone: list[bool]) -> pa.RecordBatch:
    names = [*columns.schema.names, GONE]
    return pa.RecordBatch.from_arrays([*columns.columns, pa.array(gone, pa.bool_())], names=names)


class StagingWriter(RowsWriter):
    """Votes with the rows themselves."""

    def __init__(self, sink: TableSink, app: str, subtask: int) -> None:
        super().__init__(sink)
        self._app = app
        self._subtask = subtask

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        held = self._take()
        if not held:
            return []
        about = {
            "app": self._app,
            "checkpoint": checkpoint_id,
            "subtask": self._subtask,
            "id": secrets.token_hex(8),
            "at": int(time.time() * 1000),
        }
        return [StagedCommittable(about, lambda: to_ipc(pa.Table.from_batches(held)))]


class BatchedRowsWriter(RowsWriter):
    """Writes (`flush`) when enough rows have come, when they have waited, and at every barrier."""

    def __init__(self, sink: TableSink) -> None:
        super().__init__(sink)
        self._since = 0

    @abstractmethod
    def flush(self) -> None:
        """Take what is held and write it; returns when the server has it."""

    def _hold(self, columns: pa.RecordBatch) -> None:
        super()._hold(columns)
        if self._rows >= self._about.batch_rows:
            self.flush()

    def advance_processing_time(self, now: int) -> None:
        if now >= self._since + self._about.batch_ms:
            self._since = now
            self.flush()

    def next_processing_time(self, now: int) -> int | None:
        return now + self._about.batch_ms if self._rows else None

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        self.flush()
        return []
