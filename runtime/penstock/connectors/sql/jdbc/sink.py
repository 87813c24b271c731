"""`JdbcSink`: each record's fields into a statement of the user's own, at least once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from penstock.common.errors import InvalidJob, PenstockError, RecordFormatError, SinkError
from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo
from penstock.common.types import Row
from penstock.connectors.batching import BatchingWriter
from penstock.connectors.sink import Sink, SinkWriter, WriterContext
from penstock.connectors.sql.databases import Other
from penstock.connectors.sql.jdbc.options import JdbcConnectionOptions, JdbcExecutionOptions
from penstock.connectors.sql.jdbc.urls import sqlalchemy_url
from penstock.connectors.sql.marks import count_marks, with_marks, with_names
from penstock.connectors.sql.server import Server, let_go, package
from penstock.connectors.sql.statements import shown
from penstock.connectors.sql.values import plain

logger = logging.getLogger(__name__)
_TRIED_AT_ONCE = 200


class JdbcSink(Sink):
    """Made by `sink`."""

    def __init__(
        self, sql: str, names: Sequence[str], connection: JdbcConnectionOptions, execution: JdbcExecutionOptions
    ) -> None:
        package()
        url = sqlalchemy_url(connection.url, connection.user_name, connection.password)
        self.server = Server(url, connection.password_file, any_database=True)
        self.dialect = str(self.server.parsed().get_backend_name())
        self.sql = sql
        self.names = tuple(names)
        self.execution = execution
        marks = count_marks(sql, self.dialect)
        if marks != len(self.names):
            raise InvalidJob(
                f"{sql!r} has {marks} times '?', and type_info {len(self.names)} fields",
                remedy="write a '?' for each field of the records, in their order",
            )

    @staticmethod
    def sink(
        sql: str,
        type_info: RowTypeInfo,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
    ) -> JdbcSink:
        """
        Args:
            sql: an INSERT, UPDATE, DELETE or upsert with a `?` for each field, in their order.
            type_info: of the records: `Types.ROW`, `Types.ROW_NAMED` or `Types.TUPLE`.

        Raises:
            InvalidJob: the URL, or the number of `?`, is wrong.
        """
        if isinstance(type_info, RowTypeInfo):
            names = list(type_info.get_field_names())
        elif isinstance(type_info, TupleTypeInfo):
            names = [f"f{number}" for number in range(len(type_info.get_field_types()))]
        else:
            raise InvalidJob(
                f"type_info={type_info!r} of a JdbcSink",
                remedy="say what a record has: Types.ROW([Types.INT(), Types.STRING()])",
            )
        return JdbcSink(sql, names, jdbc_connection_options, jdbc_execution_options or JdbcExecutionOptions.defaults())

    def execution_of(self, connection: Any) -> Callable[[list[tuple[Any, ...]]], Any]:
        """Carries the statement out on a connection, for each tuple of values."""
        database = self.server.database
        if not isinstance(database, Other):
            sql = with_marks(self.sql, database.mark, self.dialect)
            return lambda rows: connection.exec_driver_sql(sql, rows)
        statement = package().text(with_names(self.sql, self.dialect))
        names = [f"p{number}" for number in range(len(self.names))]
        return lambda rows: connection.execute(statement, [dict(zip(names, row, strict=True)) for row in rows])

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return JdbcWriter(self)

    def validate(self) -> None:
        """
        Raises:
            SinkError: the server does not answer or does not let us, or does not take the statement.
        """
        connection = self.server.connect(SinkError, autocommit=True)
        try:
            self.server.database.probe(connection, self.sql, len(self.names))
        except package("sqlalchemy.exc").DBAPIError as error:
            raise self.server.explained(SinkError, f"{self.sql!r} cannot be carried out", error) from error
        finally:
            connection.close()


class JdbcWriter(BatchingWriter):
    def __init__(self, sink: JdbcSink) -> None:
        super().__init__(sink.execution.batch_interval_ms)
        self._sink = sink
        self._held: list[tuple[Any, ...]] = []
        self._connection: Any = None

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def next_processing_time(self, now: int) -> int | None:
        return super().next_processing_time(now) if self._batch_ms else None

    def advance_processing_time(self, now: int) -> None:
        if self._batch_ms:
            super().advance_processing_time(now)

    def finish(self) -> None:
        self.flush()

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        size = self._sink.execution.batch_size
        for value in values:
            self._held.append(self._values(value))
            if size and len(self._held) >= size:
                self.flush()

    def _values(self, value: Any) -> tuple[Any, ...]:
        names, dialect = self._sink.names, self._sink.dialect
        if isinstance(value, dict):
            value = tuple(value.get(name) for name in names)
        elif not isinstance(value, tuple | list | Row):
            value = tuple(getattr(value, name, None) for name in names)
        found = tuple(plain(part, dialect) for part in value)
        if len(found) != len(names):
            raise RecordFormatError(
                f"record {value!r} has {len(found)} fields, and type_info {len(names)}",
                remedy="map records to Rows with the fields that type_info declares",
            )
        return found

    def flush(self) -> None:
        """
        Raises:
            SinkError: the server is lost for longer than retries take, or refuses a record.
        """
        held, self._held = self._held, []
        sink, attempt = self._sink, 0
        while held:
            try:
                self._write(held)
                return
            except (SinkError, package("sqlalchemy.exc").DBAPIError) as error:
                self.close()
                cause = error.__cause__ if isinstance(error, SinkError) else error
                lost = isinstance(cause, Exception) and sink.server.is_lost(cause)
                if not lost or attempt >= sink.execution.max_retries:
                    if isinstance(error, SinkError):
                        raise
                    raise self._told(error, [] if lost else held) from error
                logger.info("batch of %d records, try %d: %s", len(held), attempt + 1, error)
            time.sleep(attempt)  # as Flink does: 0, 1, 2, … s
            attempt += 1

    def _write(self, held: list[tuple[Any, ...]]) -> None:
        if self._connection is None:
            self._connection = self._sink.server.connect(SinkError)
        with self._connection.begin():
            self._sink.execution_of(self._connection)(held)

    def _told(self, error: Exception, held: list[tuple[Any, ...]]) -> Exception:
        row = None
        with suppress(PenstockError, package("sqlalchemy.exc").SQLAlchemyError):
            row = self._refused(held) if held else None
        which = "" if row is None else f", such as {shown(dict(zip(self._sink.names, row, strict=True)))}"
        return self._sink.server.explained(SinkError, f"records cannot be written by {self._sink.sql!r}{which}", error)

    def _refused(self, held: list[tuple[Any, ...]]) -> tuple[Any, ...] | None:
        """The first record that the server refuses; nothing is changed."""
        with self._sink.server.connect(SinkError) as connection, connection.begin() as transaction:
            try:
                for start in range(0, len(held), _TRIED_AT_ONCE):
                    some = held[start : start + _TRIED_AT_ONCE]
                    if not self._takes(connection, some):
                        return next((row for row in some if not self._takes(connection, [row])), None)
                return None
            finally:
                transaction.rollback()

    def _takes(self, connection: Any, rows: list[tuple[Any, ...]]) -> bool:
        try:
            with connection.begin_nested():
                self._sink.execution_of(connection)(rows)
            return True
        except package("sqlalchemy.exc").DBAPIError:
            return False

    def close(self) -> None:
        connection, self._connection = self._connection, None
        let_go(connection)
