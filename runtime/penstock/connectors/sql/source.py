"""`SqlSource`: reads the rows of a table by a key, either all rows once, or new rows continuously.

SqlSource("mysql+pymysql://job@db/weather", "stations", Station, key="id", splits=8)
SqlSource("mysql+pymysql://job@db/weather", "readings", Reading, key="id", follow=timedelta(seconds=1))
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Unpack

from penstock.common.errors import InvalidJob
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.core.source import Split, SplitReader
from penstock.connectors.formats.shape import Declaration
from penstock.connectors.sql.keys import key_of, position_of
from penstock.connectors.sql.server import Server, package
from penstock.connectors.sql.tables import Table, is_integer, quoted_table, quoting, readable_table
from penstock.connectors.sql.values import from_driver
from penstock.connectors.tables.columns import TableDefinition
from penstock.connectors.tables.source import KeyRangeReader, TableReader, TableSource, TableSourceOptions
from penstock.records.batch import ColumnBatch

_SETTLE_MS = 5_000


class SqlSource(TableSource):
    """Source that reads the rows of a table in the order of a key.

    Args:
        url: SQLAlchemy URL; see the package.
        table: "table" or "schema.table".
        fields: the columns to read, and the type of the records (see `formats.shape`).
        key: a column of integers, text or times that is unique and NOT NULL. The source reads rows in the order of this column, and
            positions are values of it.
        settle: delay of a source with `follow`. The source reads a row only after the row's key, or a greater key, has been visible for
            this time. If a row with a smaller key is committed after this time, the source misses that row. Default: 5 s, or 0 for
            SQLite, where only one transaction writes at a time.
        password_file: file with the password, read at every connection.
        options: the options of all databases: `record`, `splits`, `follow`, `start`.
    """

    server: Server

    def __init__(
        self,
        url: str,
        table: str,
        fields: Declaration,
        *,
        key: str,
        settle: TimeLike | None = None,
        password_file: str = "",
        **options: Unpack[TableSourceOptions],
    ) -> None:
        package()
        server = Server(url, password_file)
        default = 0 if server.parsed().get_backend_name() == "sqlite" else _SETTLE_MS
        super().__init__(server, table, fields, key=key, **options)
        self.settle_ms = default if settle is None else as_millis(settle, "settle")
        if self.bounded and settle is not None:
            raise InvalidJob(
                "settle= needs follow=, because a bounded source does not wait for rows",
                remedy="set follow=timedelta(…), or remove settle=",
            )

    def position_of(self, key: Any) -> Any:
        return position_of(key)

    def is_integer_key(self, table: TableDefinition, greatest: Any) -> bool:
        return is_integer(table.columns[self.key]) and isinstance(greatest, int)

    def _definition(self, connection: Any) -> Table:
        return readable_table(connection, self.server, self.table, self.shape.schema)

    def reader(self) -> SqlReader:
        return SqlReader(self)

    def validate(self) -> None:
        super().validate()
        reader = SqlReader(self)
        try:
            reader.page(None, None, 1)
        finally:
            reader.close()


class SqlReader(TableReader):
    """Reader of a subtask. All of its splits share one connection."""

    def __init__(self, source: SqlSource) -> None:
        super().__init__(source)
        self._settle_s = source.settle_ms / 1000
        self._mark = source.server.database.mark

    def open_split(self, split: Split, position: Any) -> SplitReader:
        return SqlRangeReader(self, split, position, self._settle_s)

    def page(self, after: Any, up_to: Any, limit: int) -> list[Any]:
        names = [*self.source.shape.names, self.source.key]
        return self.query(lambda: self._rows(names, after, up_to, "asc", limit))

    def end(self, direction: str, after: Any = None) -> Any:
        rows = self.query(lambda: self._rows([self.source.key], after, None, direction, 1))
        return position_of(rows[0][0]) if rows else None

    def records(self, rows: Sequence[Any]) -> ColumnBatch:
        return super().records(from_driver(rows, self.source.shape.schema))

    def _rows(self, names: list[str], after: Any, up_to: Any, direction: str, limit: int) -> list[Any]:
        quote = quoting(self._connection)
        key = quote(self.source.key)
        bounds = [(f"{key} > {self._mark}", after), (f"{key} <= {self._mark}", up_to)]
        conditions = [(text, key_of(value)) for text, value in bounds if value is not None]
        where = f" where {' and '.join(text for text, _ in conditions)}" if conditions else ""
        table = quoted_table(self._connection, self.source.table)
        statement = (
            f"select {', '.join(map(quote, names))} from {table}{where} order by {key} {direction} limit {limit}"
        )
        return list(self._connection.exec_driver_sql(statement, tuple(value for _, value in conditions)).fetchall())


class SqlRangeReader(KeyRangeReader):
    """Reader of one range. A key is safe after it has been visible for the `settle` time."""

    def __init__(self, reader: SqlReader, split: Split, position: Any, settle_s: float) -> None:
        super().__init__(reader, split, position)
        self._settle_s = settle_s
        self._noted: deque[tuple[float, Any]] = deque()
        """The greatest keys that the polls found, each with the time of its poll by the monotonic clock."""

    def _poll(self) -> None:
        greatest = self._reader.end("desc", self._after)
        newest = self._noted[-1][1] if self._noted else self._after
        if greatest is not None and greatest != newest:
            self._noted.append((time.monotonic(), greatest))

    def _settle(self) -> None:
        while self._noted and self._noted[0][0] + self._settle_s <= time.monotonic():
            self._safe = self._noted.popleft()[1]

    def _due(self) -> float:
        return min([self._next_poll, *(noted_at + self._settle_s for noted_at, _ in list(self._noted)[:1])])

    def close(self) -> None:
        self._noted.clear()
