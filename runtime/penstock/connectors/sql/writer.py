"""What subtasks of a sink do: hold rows for the JobManager (exactly once), or write them (at least once)."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.common.errors import PenstockError, SinkError
from penstock.connectors.sql.commits import PATIENCE_S, pause
from penstock.connectors.sql.held_rows import BatchedRowsWriter, StagingWriter
from penstock.connectors.sql.server import let_go, package
from penstock.connectors.sql.statements import Statements, refused_row, write_rows
from penstock.connectors.sql.values import check_values

if TYPE_CHECKING:
    from penstock.connectors.sql.sink import SqlSink

logger = logging.getLogger(__name__)


class CheckedStagingWriter(StagingWriter):
    def __init__(self, sink: SqlSink, app: str, subtask: int) -> None:
        super().__init__(sink, app, subtask)
        self._dialect = sink.dialect

    def _fitted(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        check_values(columns, self._dialect)
        return columns


class DirectWriter(BatchedRowsWriter):
    def __init__(self, sink: SqlSink) -> None:
        super().__init__(sink)
        self._sink = sink
        self._dialect = sink.dialect
        self._connection: Any = None

    def _fitted(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        check_values(columns, self._dialect)
        return columns

    def flush(self) -> None:
        """
        Raises:
            SinkError: the server is lost for half a minute, or refuses a row.
        """
        held, sink = self._take(), self._sink
        attempt, until = 0, None
        while held:
            try:
                self._write(held)
                return
            except (SinkError, package("sqlalchemy.exc").DBAPIError) as error:
                self.close()
                cause = error.__cause__ if isinstance(error, SinkError) else error
                lost = isinstance(cause, Exception) and sink.server.is_lost(cause)
                until = time.monotonic() + PATIENCE_S if until is None else until
                if not lost or time.monotonic() > until:
                    if isinstance(error, SinkError):
                        raise
                    raise self._told(error, [] if lost else held) from error
                logger.info("writing to %r, try %d: %s", sink.table, attempt + 1, error)
            time.sleep(pause(attempt))
            attempt += 1

    def _write(self, held: list[pa.RecordBatch]) -> None:
        sink = self._sink
        if self._connection is None:
            self._connection = sink.server.connect(SinkError)
            self._statements = self._prepared(self._connection)
        with self._connection.begin():
            write_rows(self._connection, self._statements, sink.shape.names, sink.key, held, deletes=sink.deletes)

    def _prepared(self, connection: Any) -> Statements:
        sink = self._sink
        return Statements.of(connection, sink.server.database, sink.table, sink.shape.names, sink.key)

    def _told(self, error: Exception, held: list[pa.RecordBatch]) -> Exception:
        sink, row = self._sink, ""
        if held:
            with suppress(PenstockError, package("sqlalchemy.exc").SQLAlchemyError):
                connection = sink.server.connect(SinkError)
                with connection:
                    statements = self._prepared(connection)
                    row = refused_row(connection, statements, sink.shape.names, sink.key, held, deletes=sink.deletes)
        what = f"rows cannot be written to {sink.table!r}" + (f", such as {row}" if row else "")
        return sink.server.explained(SinkError, what, error)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        let_go(connection)
