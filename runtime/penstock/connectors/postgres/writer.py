"""What a sink's subtask does: hold rows for the JobManager (exactly once), or write them (at least once)."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.common.errors import SinkError
from penstock.common.types import Row, RowKind
from penstock.connectors.formats.bulk import columns_of
from penstock.connectors.lakehouse.fields import as_columns
from penstock.connectors.postgres.client import is_lost, package, quoted
from penstock.connectors.postgres.statements import GONE, write_rows
from penstock.connectors.postgres.values import written
from penstock.connectors.sink import SinkWriter, StagedCommittable
from penstock.connectors.spark.staged import to_ipc
from penstock.records.batch import Batch, ColumnBatch

if TYPE_CHECKING:
    from penstock.connectors.postgres.sink import PostgresSink

TRIES = 6


class RowsWriter(SinkWriter):
    """Holds rows as columns."""

    def __init__(self, sink: PostgresSink) -> None:
        self._sink = sink
        self._held: list[pa.RecordBatch] = []
        self._rows = 0

    def write_batch(self, batch: Batch, watermark: int) -> None:
        if isinstance(batch, ColumnBatch):
            columns = as_columns(batch.columns, self._sink.shape.schema)
            self._hold(_marked(columns, [False] * columns.num_rows) if self._sink.deletes else columns)
        else:
            self.write(batch.values, batch.timestamps, watermark)

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        if self._sink.deletes:
            kinds = [value.get_row_kind() if isinstance(value, Row) else RowKind.INSERT for value in values]
            pairs = zip(values, kinds, strict=True)
            values = [value for value, kind in pairs if kind is not RowKind.UPDATE_BEFORE]
            gone = [kind is RowKind.DELETE for kind in kinds if kind is not RowKind.UPDATE_BEFORE]
            if values:
                self._hold(_marked(columns_of(values, self._sink.shape), gone))
        elif values:
            self._hold(columns_of(values, self._sink.shape))

    def _hold(self, columns: pa.RecordBatch) -> None:
        self._held.append(written(columns))
        self._rows += columns.num_rows

    def _take(self) -> list[pa.RecordBatch]:
        held, self._held, self._rows = self._held, [], 0
        return held


def _marked(columns: pa.RecordBatch, gone: list[bool]) -> pa.RecordBatch:
    names = [*columns.schema.names, GONE]
    return pa.RecordBatch.from_arrays([*columns.columns, pa.array(gone, pa.bool_())], names=names)


class StagingWriter(RowsWriter):
    """Votes with the rows themselves."""

    def __init__(self, sink: PostgresSink, app: str, subtask: int) -> None:
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


class DirectWriter(RowsWriter):
    """Writes when enough rows have come, when they have waited, and at every barrier."""

    def __init__(self, sink: PostgresSink) -> None:
        super().__init__(sink)
        self._connection: Any = None
        self._since = 0

    def _hold(self, columns: pa.RecordBatch) -> None:
        super()._hold(columns)
        if self._rows >= self._sink.batch_rows:
            self.flush()

    def advance_processing_time(self, now: int) -> None:
        if now >= self._since + self._sink.batch_ms:
            self._since = now
            self.flush()

    def next_processing_time(self, now: int) -> int | None:
        return now + self._sink.batch_ms if self._rows else None

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        self.flush()
        return []

    def flush(self) -> None:
        """
        Raises:
            SinkError: the server is lost for longer than some seconds, or refuses a row.
        """
        held, sink = self._take(), self._sink
        for attempt in range(TRIES if held else 0):
            try:
                if self._connection is None:
                    self._connection = sink.server.connect(SinkError)
                with self._connection.transaction():
                    write_rows(
                        self._connection, quoted(sink.table), sink.shape.names, sink.key, held, deletes=sink.deletes
                    )
                return
            except (SinkError, package().Error) as error:
                self.close()
                lost = isinstance(error, SinkError) or is_lost(error)
                if lost and attempt < TRIES - 1:
                    time.sleep(0.1 * 2**attempt)
                    continue
                if isinstance(error, SinkError):
                    raise
                raise sink.server.explained(SinkError, f"rows cannot be written to {sink.table!r}", error) from error

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
