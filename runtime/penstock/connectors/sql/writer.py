"""The writer of `SqlSink` for at least once."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.common.errors import PenstockError, SinkError
from penstock.connectors.sql.server import package
from penstock.connectors.sql.statements import Statements, refused_row, write_rows
from penstock.connectors.tables.row_writers import DirectWriter

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.connectors.sql.settings import SqlSinkSettings


class SqlWriter(DirectWriter):
    def __init__(self, sink: SqlSinkSettings) -> None:
        super().__init__(sink)
        self._sink = sink

    def _connect(self) -> Any:
        connection = super()._connect()
        self._statements = Statements.of(connection, self._sink)
        return connection

    def _write(self, batches: list[pa.RecordBatch]) -> None:
        with self._connection.begin():
            write_rows(self._connection, self._statements, batches)

    def _refused(self, batches: list[pa.RecordBatch]) -> str:
        ignored = suppress(PenstockError, package("sqlalchemy.exc").SQLAlchemyError)
        with ignored, self._server.connect(SinkError) as connection:
            return refused_row(connection, Statements.of(connection, self._sink), batches)
        return ""
