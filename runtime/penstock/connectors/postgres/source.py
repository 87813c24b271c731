"""`PostgresSource`: reads the rows of a table by a key, either all rows once, or new rows continuously.

PostgresSource("postgresql://job@db/weather", "stations", Station, key="id", splits=8)
PostgresSource("postgresql://job@db/weather", "readings", Reading, key="id", follow=timedelta(seconds=1))
"""

from __future__ import annotations

from typing import Any, Unpack

from penstock.connectors.core.source import Split, SplitReader
from penstock.connectors.formats.shape import Declaration
from penstock.connectors.postgres.client import Server, Table, is_integer, named, package, selected
from penstock.connectors.postgres.fitting import readable_table
from penstock.connectors.tables.columns import TableDefinition
from penstock.connectors.tables.source import KeyRangeReader, TableReader, TableSource, TableSourceOptions

_NEXT_TRANSACTION = """
select pg_snapshot_xmax(now)::text::bigint + age(pg_snapshot_xmax(now)::xid) from pg_current_snapshot() now"""
"""SQL for the id of the next transaction, which is above the ids of all running transactions.

The xmax of a snapshot is not enough, because it is above only the ids of transactions that have ended. A running transaction
can have a greater id, so `age` adds the number of ids that have been assigned since. A standby knows the ids in the part of
the log that it has replayed. The rows of all other transactions come later in the log.
"""


class PostgresSource(TableSource):
    """Source that reads the rows of a table in the order of a key.

    Args:
        conninfo: connection string of libpq (see `penstock.connectors.postgres`).
        table: "table" or "schema.table".
        fields: the columns to read, and the type of the records (see `formats.shape`).
        key: a column that is unique and NOT NULL. The source reads rows in the order of this column. A position is a value of this column.
        password_file: file with the password, read at every connection.
        options: the options of all databases: `record`, `splits`, `follow`, `start`.
    """

    server: Server

    def __init__(
        self,
        conninfo: str,
        table: str,
        fields: Declaration,
        *,
        key: str,
        password_file: str = "",
        **options: Unpack[TableSourceOptions],
    ) -> None:
        package()
        super().__init__(Server(conninfo, password_file), table, fields, key=key, **options)

    def position_of(self, key: Any) -> str:
        return str(key)

    def is_integer_key(self, table: TableDefinition, greatest: Any) -> bool:
        return is_integer(table.columns[self.key])

    def _definition(self, connection: Any) -> Table:
        return readable_table(connection, self.server, self.table, self.shape.schema)

    def reader(self) -> PostgresReader:
        return PostgresReader(self)


class PostgresReader(TableReader):
    """Reader of a subtask. Positions are keys as text."""

    source: PostgresSource

    def __init__(self, source: PostgresSource) -> None:
        super().__init__(source)
        self._table: TableDefinition | None = None

    def open_split(self, split: Split, position: Any) -> SplitReader:
        return PostgresRangeReader(self, split, position)

    def page(self, after: Any, up_to: Any, limit: int) -> list[Any]:
        values = [after, after, up_to, up_to, limit]
        return self.query(lambda: self._rows(self._page_statement(), values))

    def end(self, direction: str, after: Any = None) -> Any:
        rows = self.query(lambda: self._rows(self._end_statement(direction), [after, after]))
        return rows[0][1] if rows else None

    def number(self, statement: str) -> int:
        """Return the number that a statement returns."""
        return int(self.query(lambda: self._rows(statement, []))[0][0])

    def _rows(self, statement: str, values: list[Any]) -> list[Any]:
        return list(self._connection.execute(statement, values).fetchall())

    def _cast(self) -> str:
        """Return SQL that converts a position (text) to the type of the key column."""
        if self._table is None:
            self._table = self.source.definition(self._connection)
        return f"%s::{self._table.columns[self.source.key].sql_type.replace('%', '%%')}"

    def _page_statement(self) -> str:
        source = self.source
        key, cast = f"t.{named(source.key)}", self._cast()
        columns = ", ".join(selected(field) for field in source.shape.schema).replace("%", "%%")
        return (
            f"select {columns}, {key}::text as penstock_position from {named(source.table)} t where (%s::text is null or {key} > {cast}) "
            f"and (%s::text is null or {key} <= {cast}) order by {key} limit %s"
        )

    def _end_statement(self, direction: str) -> str:
        """Return the query for the first or last key. The query sorts, because some types have no min and max."""
        key = named(self.source.key)
        where = f"%s::text is null or {key} > {self._cast()}"
        return f"select {key}, {key}::text from {named(self.source.table)} where {where} order by 1 {direction} limit 1"


class PostgresRangeReader(KeyRangeReader):
    """Reader of one range.

    A transaction may commit a smaller key after another transaction has committed a greater key. The reader therefore notes the
    greatest key together with the id of the next transaction. It reads rows up to this key only after all transactions with
    smaller ids have ended.
    """

    _reader: PostgresReader

    def __init__(self, reader: PostgresReader, split: Split, position: Any) -> None:
        super().__init__(reader, split, position)
        self._noted: tuple[str, int] | None = None
        """The greatest key, and a number above the ids of all transactions that may still commit a smaller key."""

    def _poll(self) -> None:
        if self._noted is None:
            greatest = self._reader.end("desc", self._after)
            behind = self._reader.number(_NEXT_TRANSACTION)
            if greatest is None:
                return
            self._noted = (greatest, behind)
        oldest = self._reader.number("select pg_snapshot_xmin(pg_current_snapshot())::text")
        if self._noted[1] <= oldest:
            self._safe, self._noted = self._noted[0], None
