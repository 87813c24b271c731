"""`SqlLookup`: rows of a table for each value of a stream, asked for beside the task, and kept for a time.

stations = SqlLookup("mysql+pymysql://job@db/weather", "stations", {"id": str, "name": str}, column="id",
                     key=lambda reading: reading.station, join=lambda reading, rows: [(reading, row) for row in rows])
AsyncDataStream.unordered_wait(readings, stations, timedelta(seconds=10), capacity=1000)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from penstock.common.errors import PlatformError, SourceError
from penstock.common.time import TimeLike
from penstock.connectors.formats.bulk import columns_of
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.connectors.lookup import Lookup
from penstock.connectors.sql.server import Server, let_go, package
from penstock.connectors.sql.tables import check_fields, is_integer, look_up, quoting
from penstock.connectors.sql.values import from_driver

_ANSWER_S = 20
"""Until the driver gives up; before whoever waits for it does."""


class SqlLookup(Lookup):
    """Connections are the driver's own, in threads beside the task.

    Args:
        url: SQLAlchemy's; see the package.
        table: "table" or "schema.table".
        fields: which columns, and what rows are (see `formats.shape`).
        column: what keys are looked for in; an index there is what makes it quick.
        key: a value of the stream -> its key; None is looked for nowhere.
        join: a value and its rows, in no order -> the results, any number.
        ttl: how long an answer is believed, also that there is no row; 0: not at all.
        most_kept: answers of a subtask at most; the oldest go first.
        connections: of a subtask.
        password_file: holds the password; read at every connection.
    """

    def __init__(
        self,
        url: str,
        table: str,
        fields: Declaration,
        *,
        column: str,
        key: Callable[[Any], Any],
        join: Callable[[Any, list[Any]], list[Any]],
        record: str | None = None,
        ttl: TimeLike = 60_000,
        most_kept: int = 100_000,
        connections: int = 2,
        password_file: str = "",
    ) -> None:
        package()
        super().__init__(key, join, ttl, most_kept, connections)
        self.server = Server(url, password_file)
        self.server.parsed()
        self.table = table
        self.shape = RecordShape.of(fields, record)
        self.column = column
        self._threads: ThreadPoolExecutor | None = None

    def open(self, runtime_context: Any) -> None:
        """
        Raises:
            InvalidJob: the table has no such columns.
            SourceError: the server does not answer or does not let us, or there is no such table or right.
        """
        connection = self.server.connect(SourceError, autocommit=True)
        try:
            table = look_up(connection, self.server, self.table, SourceError)
            check_fields(self.shape.schema, table, writes=False)
            if self.column not in table.columns:
                raise SourceError(
                    f"{self.server.shown}: {table.sql} has no column {self.column!r}",
                    remedy=f"name one of {', '.join(table.columns)}",
                )
            quote = quoting(connection)
        finally:
            connection.close()
        self._counts = is_integer(table.columns[self.column])
        names = ", ".join(map(quote, [*self.shape.names, self.column]))
        self._select = f"select {names} from {table.sql} where {quote(self.column)} in "
        self._mark = self.server.database.mark
        self._threads = ThreadPoolExecutor(self.connections + 1, "sql-lookup")
        self._prepare()

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    @property
    def shown(self) -> str:
        return self.server.shown

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    async def _connect(self) -> Any:
        return await self._in_thread(lambda: self.server.connect(SourceError, autocommit=True, read_s=_ANSWER_S))

    async def _disconnect(self, connection: Any) -> None:
        let_go(connection)  # waits for nothing

    async def _ask(self, connection: Any, keys: list[str]) -> dict[str, list[Any]]:
        values = tuple(map(self._number, keys)) if self._counts else tuple(keys)
        statement = f"{self._select}({', '.join([self._mark] * len(values))})"
        rows = await self._in_thread(lambda: connection.exec_driver_sql(statement, values).fetchall())
        if not rows:
            return {}
        made = self.shape.maker(columns_of(from_driver([row[:-1] for row in rows], self.shape.schema), self.shape))
        found: dict[str, list[Any]] = {}
        for row, value in zip(rows, made, strict=True):
            found.setdefault(str(row[-1]), []).append(value)
        return found

    def _number(self, key: str) -> int:
        """A server would take text that is none for 0."""
        try:
            return int(key)
        except ValueError as error:
            raise SourceError(
                f"{self.shown}: {key!r} is no key of column {self.column!r}, which has numbers",
                remedy="let `key` give a number, or None for what is to be looked for nowhere",
            ) from error

    def _nothing(self) -> list[Any]:
        return []

    def _explained(self, error: Exception) -> tuple[PlatformError | None, bool]:
        if isinstance(error, SourceError):
            cause = error.__cause__
            return error, isinstance(cause, Exception) and bool(self.server.is_lost(cause))
        lost = self.server.is_lost(error)
        if lost is None:
            return None, False
        return self.server.explained(SourceError, f"table {self.table!r} cannot be read", error), lost
