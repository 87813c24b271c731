"""`SqlLookup`: enriches each value of a stream with rows of a table. It queries asynchronously and caches the results.

`AsyncDataStream` runs it:

    stations = SqlLookup("mysql+pymysql://job@db/weather", "stations", {"id": str, "name": str}, column="id",
                         key=lambda reading: reading.station, join=lambda reading, rows: [(reading, row) for row in rows])
    AsyncDataStream.unordered_wait(readings, stations, timedelta(seconds=10), capacity=1000)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Unpack

from penstock.common.errors import SourceError
from penstock.connectors.formats.shape import Declaration
from penstock.connectors.sql.server import Server, package
from penstock.connectors.sql.tables import Table, is_integer, quoting, readable_table
from penstock.connectors.sql.values import from_driver
from penstock.connectors.tables.columns import TableDefinition
from penstock.connectors.tables.lookup import TableLookup, TableLookupOptions

_ANSWER_S = 20
"""Timeout of the driver in seconds. It is shorter than the timeout of the operator that waits for the result."""


class SqlLookup(TableLookup):
    """Lookup in a table. The driver's blocking connections run in threads.

    Args:
        url: SQLAlchemy URL; see the package.
        table: "table" or "schema.table".
        fields: the columns to read, and the type of the rows (see `formats.shape`).
        column: the column to search. An index on it makes lookups fast.
        key: a function from a value of the stream to its key. None means that there is no query for the value.
        join: a function from a value and its rows (in any order) to a list of results.
        password_file: file with the password, read at every connection.
        options: the options of all databases: `record`, `ttl`, `most_kept`, `connections`.
    """

    server: Server

    def __init__(
        self,
        url: str,
        table: str,
        fields: Declaration,
        *,
        column: str,
        key: Callable[[Any], Any],
        join: Callable[[Any, list[Any]], list[Any]],
        password_file: str = "",
        **options: Unpack[TableLookupOptions],
    ) -> None:
        package()
        server = Server(url, password_file)
        server.parsed()
        super().__init__(server, table, fields, column=column, key=key, join=join, **options)
        self._threads: ThreadPoolExecutor | None = None

    def _definition(self, connection: Any) -> Table:
        return readable_table(connection, self.server, self.table, self.shape.schema)

    def _prepare_query(self, connection: Any, table: TableDefinition) -> None:
        quote = quoting(connection)
        self._counts = is_integer(table.columns[self.column])
        names = ", ".join(map(quote, [*self.shape.names, self.column]))
        self._select = f"select {names} from {table.sql} where {quote(self.column)} in "
        self._mark = self.server.database.mark
        self._threads = ThreadPoolExecutor(self.connections + 1, "sql-lookup")

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    async def _connect(self) -> Any:
        return await self._in_thread(lambda: self.server.connect(SourceError, autocommit=True, read_s=_ANSWER_S))

    async def _disconnect(self, connection: Any) -> None:
        self.server.discard(connection)  # does not block

    async def _request(self, connection: Any, keys: list[str]) -> dict[str, list[Any]]:
        values = tuple(map(self._number, keys)) if self._counts else tuple(keys)
        statement = f"{self._select}({', '.join([self._mark] * len(values))})"
        rows = await self._in_thread(lambda: connection.exec_driver_sql(statement, values).fetchall())
        return self._by_key((row[-1] for row in rows), from_driver([row[:-1] for row in rows], self.shape.schema))

    def _number(self, key: str) -> int:
        """Return the key as a number. A server would read text that is not a number as 0."""
        try:
            return int(key)
        except ValueError as error:
            raise SourceError(
                f"{self.shown}: the key {key!r} is not a number, but column {self.column!r} has numbers",
                remedy="let `key` return a number, or None for values without a lookup",
            ) from error
