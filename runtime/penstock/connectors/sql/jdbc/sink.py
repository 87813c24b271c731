"""`JdbcSink`: executes the user's statement with the fields of each record, at least once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.common.errors import InvalidJob, PenstockError, RecordFormatError, SinkError
from penstock.common.type_info.declared_fields import DeclaredFields, FieldMismatch
from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo
from penstock.connectors.core.batching import BatchingWriter
from penstock.connectors.core.sink import Sink, SinkWriter, WriterContext
from penstock.connectors.sql.databases import Other
from penstock.connectors.sql.jdbc.options import JdbcConnectionOptions, JdbcExecutionOptions
from penstock.connectors.sql.jdbc.urls import sqlalchemy_url
from penstock.connectors.sql.marks import count_marks, with_marks, with_names
from penstock.connectors.sql.server import Server, package
from penstock.connectors.sql.statements import shown
from penstock.connectors.sql.values import plain

logger = logging.getLogger(__name__)
_TRIED_AT_ONCE = 200


class JdbcSink(Sink):
    """Sink that executes a statement for each record. `JdbcSink.sink` creates it."""

    def __init__(
        self, sql: str, fields: DeclaredFields, connection: JdbcConnectionOptions, execution: JdbcExecutionOptions
    ) -> None:
        package()
        url = sqlalchemy_url(connection.url, connection.user_name, connection.password)
        self.server = Server(url, connection.password_file, any_database=True)
        self.dialect = str(self.server.parsed().get_backend_name())
        self.sql = sql
        self.fields = fields
        self.names = fields.names
        self.execution = execution
        marks = count_marks(sql, self.dialect)
        if marks != len(self.names):
            raise InvalidJob(
                f"{sql!r} has {marks} placeholders (?), but type_info has {len(self.names)} fields",
                remedy="write a '?' for each field of the records, in their order",
            )

    @staticmethod
    def sink(
        sql: str,
        type_info: RowTypeInfo,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
    ) -> JdbcSink:
        """Create the sink.

        Args:
            sql: an INSERT, UPDATE, DELETE or upsert with a `?` for each field, in their order.
            type_info: the type of the records: `Types.ROW`, `Types.ROW_NAMED` or `Types.TUPLE`.

        Raises:
            InvalidJob: the URL or the number of `?` is wrong.
        """
        if isinstance(type_info, RowTypeInfo):
            fields = type_info.declared_fields
        elif isinstance(type_info, TupleTypeInfo):
            names = [f"f{number}" for number in range(len(type_info.get_field_types()))]
            fields = DeclaredFields(names, is_positional=True)
        else:
            raise InvalidJob(
                f"JdbcSink does not support type_info={type_info!r}",
                remedy="declare the fields of a record: Types.ROW([Types.INT(), Types.STRING()])",
            )
        return JdbcSink(sql, fields, jdbc_connection_options, jdbc_execution_options or JdbcExecutionOptions.defaults())

    def execution_of(self, connection: Any) -> Callable[[list[tuple[Any, ...]]], Any]:
        """Return a function that executes the statement on a connection for each tuple of values."""
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
        """Check the connection and the statement.

        Raises:
            SinkError: the server does not respond, or refuses the user or the statement.
        """
        try:
            with self.server.session(SinkError) as connection:
                self.server.database.probe(connection, self.sql, len(self.names))
        except package("sqlalchemy.exc").DBAPIError as error:
            raise self.server.explained(SinkError, f"{self.sql!r} cannot be executed", error) from error


class JdbcWriter(BatchingWriter):
    def __init__(self, sink: JdbcSink) -> None:
        super().__init__(sink.execution.batch_interval_ms)
        self._sink = sink
        self._buffered: list[tuple[Any, ...]] = []
        self._connection: Any = None

    @property
    def holds(self) -> bool:
        return bool(self._buffered)

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
            self._buffered.append(self._values(value))
            if size and len(self._buffered) >= size:
                self.flush()

    def _values(self, value: Any) -> tuple[Any, ...]:
        dialect = self._sink.dialect
        try:
            return tuple(plain(part, dialect) for part in self._sink.fields.values(value))
        except FieldMismatch as error:
            raise RecordFormatError(
                f"{self._sink.sql!r} cannot write record {value!r}: {error}",
                remedy="map records to Rows with the fields that type_info declares",
            ) from None

    def flush(self) -> None:
        """Write the buffered records, and retry while the server is lost.

        Raises:
            SinkError: all retries failed, or the server refuses a record.
        """
        records, self._buffered = self._buffered, []
        sink, attempt = self._sink, 0
        while records:
            try:
                self._write(records)
                return
            except (SinkError, package("sqlalchemy.exc").DBAPIError) as error:
                self.close()
                cause = error.__cause__ if isinstance(error, SinkError) else error
                lost = isinstance(cause, Exception) and sink.server.is_lost(cause)
                if not lost or attempt >= sink.execution.max_retries:
                    if isinstance(error, SinkError):
                        raise
                    raise self._explained(error, [] if lost else records) from error
                logger.info("attempt %d to write %d records failed, retrying: %s", attempt + 1, len(records), error)
            time.sleep(attempt)  # as Flink does: 0, 1, 2, … s
            attempt += 1

    def _write(self, records: list[tuple[Any, ...]]) -> None:
        if self._connection is None:
            self._connection = self._sink.server.connect(SinkError)
        with self._connection.begin():
            self._sink.execution_of(self._connection)(records)

    def _explained(self, error: Exception, records: list[tuple[Any, ...]]) -> Exception:
        row = None
        with suppress(PenstockError, package("sqlalchemy.exc").SQLAlchemyError):
            row = self._refused(records) if records else None
        which = "" if row is None else f", such as {shown(dict(zip(self._sink.names, row, strict=True)))}"
        return self._sink.server.explained(SinkError, f"{self._sink.sql!r} cannot write records{which}", error)

    def _refused(self, records: list[tuple[Any, ...]]) -> tuple[Any, ...] | None:
        """Return the first record that the server refuses, or None if it accepts all of them now. The table does not change."""
        with self._sink.server.connect(SinkError) as connection, connection.begin() as transaction:
            try:
                for start in range(0, len(records), _TRIED_AT_ONCE):
                    some = records[start : start + _TRIED_AT_ONCE]
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
        if connection is not None:
            self._sink.server.discard(connection)
