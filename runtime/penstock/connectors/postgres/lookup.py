"""`PostgresLookup`: enriches each value of a stream with rows of a table. It queries asynchronously and caches the results.

`AsyncDataStream` runs it:

    stations = PostgresLookup("postgresql://job@db/weather", "stations", {"id": str, "name": str}, column="id",
                              key=lambda reading: reading.station, join=lambda reading, rows: [(reading, row) for row in rows])
    AsyncDataStream.unordered_wait(readings, stations, timedelta(seconds=10), capacity=1000)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from penstock.common.errors import SourceError
from penstock.connectors.formats.shape import Declaration
from penstock.connectors.postgres.client import SETTINGS, Server, Table, named, package, selected
from penstock.connectors.postgres.fitting import readable_table
from penstock.connectors.tables.columns import TableDefinition
from penstock.connectors.tables.lookup import TableLookup, TableLookupOptions


class PostgresLookup(TableLookup):
    """Lookup in a table, with asynchronous connections.

    Args:
        conninfo: connection string of libpq; see the package.
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
        conninfo: str,
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
        super().__init__(Server(conninfo, password_file), table, fields, column=column, key=key, join=join, **options)

    def _definition(self, connection: Any) -> Table:
        return readable_table(connection, self.server, self.table, self.shape.schema)

    def _prepare_query(self, connection: Any, table: TableDefinition) -> None:
        columns = ", ".join(selected(field) for field in self.shape.schema)
        kind = table.columns[self.column].sql_type.replace("%", "%%")
        columns = columns.replace("%", "%%")
        self._statement = (
            f"select {columns}, penstock_keys.text as penstock_key from unnest(%s::text[]) penstock_keys (text) "
            f"join {named(self.table)} t on t.{named(self.column)} = penstock_keys.text::{kind}"
        )

    async def _connect(self) -> Any:
        options = self.server.options(SourceError)
        connection = await package().AsyncConnection.connect(self.server.conninfo, autocommit=True, **options)
        try:
            await connection.execute(SETTINGS)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _disconnect(self, connection: Any) -> None:
        await connection.close()

    async def _request(self, connection: Any, keys: list[str]) -> dict[str, list[Any]]:
        rows = await (await connection.execute(self._statement, [keys])).fetchall()
        return self._by_key((row[-1] for row in rows), [row[:-1] for row in rows])
