"""`PostgresLookup`: rows of a table for each value of a stream, asked for beside the task, and kept for a time.

stations = PostgresLookup("postgresql://job@db/weather", "stations", {"id": str, "name": str}, column="id",
                          key=lambda reading: reading.station, join=lambda reading, rows: [(reading, row) for row in rows])
AsyncDataStream.unordered_wait(readings, stations, timedelta(seconds=10), capacity=1000)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.common.errors import PlatformError, SourceError
from penstock.common.time import TimeLike
from penstock.connectors.formats.bulk import columns_of
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.connectors.lookup import Lookup
from penstock.connectors.postgres.client import (
    SETTINGS,
    Server,
    check_rights,
    is_lost,
    look_up,
    named,
    package,
    selected,
)
from penstock.connectors.postgres.fitting import check_read


class PostgresLookup(Lookup):
    """
    Args:
        conninfo: libpq's; see the package.
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
        conninfo: str,
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
        self.server = Server(conninfo, password_file)
        self.table = table
        self.shape = RecordShape.of(fields, record)
        self.column = column

    def open(self, runtime_context: Any) -> None:
        """
        Raises:
            InvalidJob: the table has no such columns.
            SourceError: the server does not answer or does not let us, or there is no such table or right.
        """
        with self.server.connect(SourceError, autocommit=True) as connection:
            table = look_up(connection, self.server, self.table, SourceError)
            check_rights(table, ["SELECT"], self.server, SourceError)
            check_read(self.shape.schema, table)
            if self.column not in table.columns:
                raise SourceError(
                    f"{self.server.shown}: {table.sql} has no column {self.column!r}",
                    remedy=f"name one of {', '.join(table.columns)}",
                )
        columns = ", ".join(selected(field) for field in self.shape.schema)
        kind = table.columns[self.column].sql_type.replace("%", "%%")
        columns = columns.replace("%", "%%")
        self._statement = (
            f"select {columns}, penstock_keys.text as penstock_key from unnest(%s::text[]) penstock_keys (text) "
            f"join {named(self.table)} t on t.{named(self.column)} = penstock_keys.text::{kind}"
        )
        self._prepare()

    @property
    def shown(self) -> str:
        return self.server.shown

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

    async def _ask(self, connection: Any, keys: list[str]) -> dict[str, list[Any]]:
        rows = await (await connection.execute(self._statement, [keys])).fetchall()
        made = self.shape.maker(columns_of([row[:-1] for row in rows], self.shape)) if rows else []
        found: dict[str, list[Any]] = {}
        for row, value in zip(rows, made, strict=True):
            found.setdefault(row[-1], []).append(value)
        return found

    def _nothing(self) -> list[Any]:
        return []

    def _explained(self, error: Exception) -> tuple[PlatformError | None, bool]:
        if not isinstance(error, package().Error):
            return None, False
        what = f"table {self.table!r} cannot be read"
        return self.server.explained(SourceError, what, error), is_lost(error)
