"""`PostgresSource`: the rows of a table by a key; all of them, or on and on what grows behind.

PostgresSource("postgresql://job@db/weather", "stations", Station, key="id", splits=8)
PostgresSource("postgresql://job@db/weather", "readings", Reading, key="id", follow=timedelta(seconds=1))
"""

from __future__ import annotations

import time
from typing import Any

from penstock.common.errors import InvalidJob, SourceError
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.formats.bulk import columns_of
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.connectors.postgres.client import (
    Server,
    Table,
    check_rights,
    is_integer,
    is_lost,
    look_up,
    named,
    package,
    selected,
)
from penstock.connectors.postgres.fitting import check_read
from penstock.connectors.sequence import ranges
from penstock.connectors.source import (
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.records.batch import ColumnBatch

TRIES = 6
_ABOVE_ALL = "select case when pg_is_in_recovery() then pg_snapshot_xmax(pg_current_snapshot())::text else pg_current_xact_id()::text end"
"""A number above those of all transactions that run: the end of a snapshot is only above those that have ended."""


class PostgresSource(Source):
    """
    Args:
        conninfo: libpq's; see the package.
        table: "table" or "schema.table".
        fields: which columns, and what records are (see `formats.shape`).
        key: a column that is unique and NOT NULL: rows are read in its order, and positions are values of it.
        record: another form for the same fields: "tuple", "dict" or "row".
        splits: how many ranges of an integer key are read side by side; one for each subtask unless given. Other keys are read as one range.
        follow: look for rows with greater keys at this interval; the source does not end.
        start: rows behind this value of the key; "latest": what comes. All rows unless given.
        password_file: holds the password; read at every connection.
    """

    def __init__(
        self,
        conninfo: str,
        table: str,
        fields: Declaration,
        *,
        key: str,
        record: str | None = None,
        splits: int | None = None,
        follow: TimeLike | None = None,
        start: Any = None,
        password_file: str = "",
    ) -> None:
        package()
        self.server = Server(conninfo, password_file)
        self.table = table
        self.shape = RecordShape.of(fields, record)
        self.key = key
        self.splits = splits
        self.follow_ms = None if follow is None else as_millis(follow, "follow")
        self.start = None if start is None else str(start)
        self.bounded = self.follow_ms is None
        if splits is not None and (splits < 1 or follow is not None):
            raise InvalidJob(f"splits={splits}", remedy="1 or more, and none for a source that follows its table")
        if self.start == "latest" and self.bounded:
            raise InvalidJob("start='latest' of a bounded source", remedy="give follow=timedelta(…)")

    def look(self, connection: Any) -> Table:
        """The table as it is.

        Raises:
            InvalidJob: it has no such columns, or the key is none.
            SourceError: there is no such table or right.
        """
        table = look_up(connection, self.server, self.table, SourceError)
        check_rights(table, ["SELECT"], self.server, SourceError)
        check_read(self.shape.schema, table)
        if self.key not in table.columns or frozenset([self.key]) not in table.unique:
            raise InvalidJob(
                f"key={self.key!r} of table {table.sql} is no column that is NOT NULL and has a unique index of its own",
                remedy="rows are found again by it after a failure: name such a column, a primary key or an identity",
            )
        return table

    def create_enumerator(self) -> SplitEnumerator:
        return PostgresEnumerator(self)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return PostgresReader(self)

    def produced_type(self) -> Any:
        return self.shape.produced_type()

    def validate(self) -> None:
        """
        Raises:
            InvalidJob: the table has no such columns, or the key is none.
            SourceError: the server does not answer or does not let us, or there is no such table or right.
        """
        with self.server.connect(SourceError, autocommit=True) as connection:
            self.look(connection)


class PostgresEnumerator(SplitEnumerator):
    """Ranges are found once. `after` and `up_to`: of a range, None: from the first, or on and on."""

    forgets_finished = True

    def __init__(self, source: PostgresSource) -> None:
        self._source = source
        self._found = False

    def discover(self) -> list[Split]:
        if self._found:
            return []
        source = self._source
        with source.server.connect(SourceError, autocommit=True) as connection:
            table = source.look(connection)
            start = source.start if source.start != "latest" else None
            least = _end_of(connection, table, source, "asc", start)
            most = _end_of(connection, table, source, "desc", start)
        self._found = True
        if not source.bounded:
            after = most if source.start == "latest" else source.start
            return [Split("follow", {"after": after, "up_to": None})]
        if least is None or most is None:
            return []
        if not is_integer(table.columns[source.key]):
            return [Split(f"up to {most}", {"after": source.start, "up_to": most})]
        parts = ranges(int(least), int(most) + 1, source.splits or max(1, self.parallelism))
        return [
            Split(f"{low}-{high}", {"after": str(low - 1), "up_to": str(high - 1)}, high - low)
            for low, high in parts
            if high > low
        ]

    def snapshot(self) -> Any:
        return self._found

    def restore(self, state: Any) -> None:
        self._found = bool(state)


class PostgresReader(SourceReader):
    """One connection for all splits of a subtask."""

    def __init__(self, source: PostgresSource) -> None:
        self.source = source
        self._connection: Any = None
        self._table: Table | None = None

    def open_split(self, split: Split, position: Any) -> SplitReader:
        return RangeReader(self, split.properties["after"], split.properties["up_to"], position)

    def query(self, statement: str, values: list[Any]) -> list[Any]:
        """The rows that a statement gives; a lost connection is made anew.

        Raises:
            SourceError: the server is lost for longer than some seconds, or refuses the statement.
        """
        for attempt in range(TRIES):
            try:
                if self._connection is None:
                    self._connection = self.source.server.connect(SourceError, autocommit=True)
                return list(self._connection.execute(statement, values).fetchall())
            except (SourceError, package().Error) as error:
                self.close()
                if (isinstance(error, SourceError) or is_lost(error)) and attempt < TRIES - 1:
                    time.sleep(0.1 * 2**attempt)
                    continue
                if isinstance(error, SourceError):
                    raise
                what = f"table {self.source.table!r} cannot be read"
                raise self.source.server.explained(SourceError, what, error) from error
        raise AssertionError("unreachable")

    def greatest(self) -> str | None:
        """The greatest key that can be seen now."""
        rows = self.query(f"{_keys(self.source)} order by 1 desc limit 1", [])
        return str(rows[0][1]) if rows else None

    def _looked_up(self) -> Table:
        if self._table is None:
            with self.source.server.connect(SourceError, autocommit=True) as connection:
                self._table = self.source.look(connection)
        return self._table

    def statement(self) -> str:
        """A page of rows behind a key and up to another."""
        source, table = self.source, self._looked_up()
        key, cast = f"t.{named(source.key)}", _cast(table, source)
        columns = ", ".join(selected(field) for field in source.shape.schema).replace("%", "%%")
        return (
            f"select {columns}, {key}::text as penstock_position from {named(source.table)} t where (%s::text is null or {key} > {cast}) "
            f"and (%s::text is null or {key} <= {cast}) order by {key} limit %s"
        )

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class RangeReader(SplitReader):
    """Reads pages of rows. What follows its table reads up to a key behind which nothing can come any more.

    A transaction that began earlier may commit a smaller key later. So the greatest key is noted together with the transactions that
    run at that moment, and rows up to it are read when all of those are over.
    """

    def __init__(self, reader: PostgresReader, after: str | None, up_to: str | None, position: Any) -> None:
        self._reader = reader
        self._after: str | None = after if position is None else position
        self._up_to = up_to
        self._follows = up_to is None
        self._safe: str | None = up_to
        self._noted: tuple[str, int] | None = None
        self._next_look = 0.0
        self._finished = False

    def read(self, bounds: ReadBounds) -> ColumnBatch | None:
        if self._finished or (self._follows and self._safe is None and not self._look()):
            return None
        limit = max(1, bounds.max_records)
        values = [self._after, self._after, self._safe, self._safe, limit]
        rows = self._reader.query(self._reader.statement(), values)
        if len(rows) < limit:
            self._finished = not self._follows
            if self._follows and self._safe is not None:
                self._after, self._safe = self._safe, None
        if not rows:
            return None
        shape = self._reader.source.shape
        if not self._follows or len(rows) == limit:
            self._after = rows[-1][-1]
        return ColumnBatch(columns_of([row[:-1] for row in rows], shape), None, shape.maker)

    def _look(self) -> bool:
        """Whether there is something to read."""
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + (self._reader.source.follow_ms or 0) / 1000
        if self._noted is None:
            self._note()
        if self._noted is not None:
            oldest = int(self._reader.query("select pg_snapshot_xmin(pg_current_snapshot())::text", [])[0][0])
            if self._noted[1] <= oldest:
                self._safe, self._noted = self._noted[0], None
        return self._safe is not None

    def _note(self) -> None:
        """The greatest key, and the number below which transactions may still bring a smaller one."""
        most = self._reader.greatest()
        behind = int(self._reader.query(_ABOVE_ALL, [])[0][0])
        if most is not None and most != self._after:
            self._noted = (most, behind)

    @property
    def position(self) -> Any:
        return self._after

    @property
    def finished(self) -> bool:
        return self._finished

    def next_record_at(self) -> int | None:
        if not self._follows or self._safe is not None:
            return None
        return int((time.time() + max(0.0, self._next_look - time.monotonic())) * 1000)


def _keys(source: PostgresSource) -> str:
    key = named(source.key)
    return f"select {key}, {key}::text from {named(source.table)}"


def _end_of(connection: Any, table: Table, source: PostgresSource, direction: str, start: str | None) -> str | None:
    """The least or greatest key behind another; some types have no min and max."""
    behind = f"where %s::text is null or {named(source.key)} > {_cast(table, source)}"
    statement = f"{_keys(source)} {behind} order by 1 {direction} limit 1"
    row = connection.execute(statement, [start, start]).fetchone()
    return None if row is None else str(row[1])


def _cast(table: Table, source: PostgresSource) -> str:
    return f"%s::{table.columns[source.key].sql_type.replace('%', '%%')}"
