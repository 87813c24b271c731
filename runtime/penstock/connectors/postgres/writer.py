"""What a sink's subtask does: hold rows for the JobManager (exactly once), or write them (at least once)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.common.errors import SinkError
from penstock.connectors.postgres.client import is_lost, package, quoted
from penstock.connectors.postgres.statements import write_rows
from penstock.connectors.postgres.values import written
from penstock.connectors.sql.held_rows import BatchedRowsWriter, StagingWriter

if TYPE_CHECKING:
    from penstock.connectors.postgres.sink import PostgresSink

TRIES = 6


class WrittenStagingWriter(StagingWriter):
    def _fitted(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        return written(columns)


class DirectWriter(BatchedRowsWriter):
    def __init__(self, sink: PostgresSink) -> None:
        super().__init__(sink)
        self._sink = sink
        self._connection: Any = None

    def _fitted(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        return written(columns)

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
