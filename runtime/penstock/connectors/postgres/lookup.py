"""`PostgresLookup`: rows of a table for each value of a stream, asked for beside the task, and kept for a time.

    stations = PostgresLookup("postgresql://job@db/weather", "stations", {"id": str, "name": str}, column="id",
                              key=lambda reading: reading.station, join=lambda reading, rows: [(reading, row) for row in rows])
    AsyncDataStream.unordered_wait(readings, stations, timedelta(seconds=10), capacity=1000)

Keys that are asked for at the same time go in one query, and a key that is asked for already is not asked for again.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from penstock.common.errors import SourceError
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.formats.bulk import columns_of
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.connectors.postgres.client import (
    Server,
    check_fields,
    check_rights,
    is_lost,
    look_up,
    package,
    quoted,
    selected,
)
from penstock.functions.async_io.async_functions import AsyncFunction

_AT_ONCE = 500
"""Keys in one query."""
_TRIES = 5


class PostgresLookup(AsyncFunction):
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
        self.server = Server(conninfo, password_file)
        self.table = table
        self.shape = RecordShape.of(fields, record)
        self.column = column
        self.key = key
        self.join = join
        self.ttl_s = as_millis(ttl, "ttl") / 1000
        self.most_kept = most_kept
        self.connections = connections

    def open(self, runtime_context: Any) -> None:
        """
        Raises:
            InvalidJob: the table has no such columns.
            SourceError: the server does not answer or does not let us, or there is no such table or right.
        """
        with self.server.connect(SourceError, autocommit=True) as connection:
            table = look_up(connection, self.server, self.table, SourceError)
            check_rights(table, ["SELECT"], self.server, SourceError)
            check_fields(self.shape.schema, table, writes=False)
            if self.column not in table.columns:
                raise SourceError(
                    f"{self.server.shown}: {table.sql} has no column {self.column!r}",
                    remedy=f"name one of {', '.join(table.columns)}",
                )
        name = f"t.{quoted(self.column)}"
        columns = ", ".join(selected(field) for field in self.shape.schema)
        kind = table.columns[self.column].type
        self._statement = f"select {columns}, {name}::text as penstock_key from {table.sql} t where {name} = any(%s::text[]::{kind}[])"
        self._kept: OrderedDict[str, tuple[float, list[Any]]] = OrderedDict()
        self._asked: dict[str, asyncio.Future[list[Any]]] = {}
        self._waiting: list[str] = []
        self._working: set[asyncio.Task[None]] = set()

    async def async_invoke(self, value: Any) -> list[Any]:
        key = self.key(value)
        return self.join(value, [] if key is None else await self._rows(str(key)))

    async def _rows(self, key: str) -> list[Any]:
        until, rows = self._kept.get(key, (0.0, []))
        if time.monotonic() < until:
            return rows
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = asyncio.get_running_loop().create_future()
            self._waiting.append(key)
            if len(self._working) < self.connections:
                task = asyncio.get_running_loop().create_task(self._work())
                self._working.add(task)
                task.add_done_callback(self._working.discard)
        return await asyncio.shield(asked)  # who waits no longer must not take the answer from the others

    async def _work(self) -> None:
        """Ask for what waits, until nothing does."""
        connection: Any = None
        try:
            await asyncio.sleep(0)  # what comes in the same turn goes in the same query
            while self._waiting:
                keys, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
                try:
                    connection, found = await self._ask(connection, keys)
                except BaseException as error:
                    for key in keys:
                        asked = self._asked.pop(key)
                        asked.set_exception(error)
                        asked.exception()  # somebody may wait for it no longer
                    if not isinstance(error, Exception):
                        raise
                    continue
                self._keep(keys, found)
        finally:
            if connection is not None:
                await connection.close()

    async def _ask(self, connection: Any, keys: list[str]) -> tuple[Any, dict[str, list[Any]]]:
        psycopg = package()
        for attempt in range(_TRIES):
            try:
                if connection is None:
                    connection = await psycopg.AsyncConnection.connect(
                        self.server.conninfo, autocommit=True, **self.server.options(SourceError)
                    )
                rows = await (await connection.execute(self._statement, [keys])).fetchall()
                made = self.shape.maker(columns_of([row[:-1] for row in rows], self.shape)) if rows else []
                found: dict[str, list[Any]] = {}
                for row, value in zip(rows, made, strict=True):
                    found.setdefault(row[-1], []).append(value)
                return connection, found
            except psycopg.Error as error:
                if connection is not None:
                    await connection.close()
                    connection = None
                if not is_lost(error) or attempt == _TRIES - 1:
                    what = f"table {self.table!r} cannot be read"
                    raise self.server.explained(SourceError, what, error) from error
                await asyncio.sleep(0.1 * 2**attempt)
        raise AssertionError("unreachable")

    def _keep(self, keys: list[str], found: dict[str, list[Any]]) -> None:
        until = time.monotonic() + self.ttl_s
        for key in keys:
            rows = found.get(key, [])
            self._asked.pop(key).set_result(rows)
            self._kept[key] = until, rows
            self._kept.move_to_end(key)
        while len(self._kept) > self.most_kept:
            self._kept.popitem(last=False)
