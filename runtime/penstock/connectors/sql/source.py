"""`SqlSource`: the rows of a table by a key; all of them, or on and on what grows behind.

SqlSource("mysql+pymysql://job@db/weather", "stations", Station, key="id", splits=8)
SqlSource("mysql+pymysql://job@db/weather", "readings", Reading, key="id", follow=timedelta(seconds=1))
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from penstock.common.errors import InvalidJob, SourceError
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.formats.bulk import columns_of
from penstock.connectors.formats.shape import Declaration, RecordShape
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
from penstock.connectors.sql.commits import PATIENCE_S, pause
from penstock.connectors.sql.keys import key_of, position_of
from penstock.connectors.sql.server import Server, let_go, package
from penstock.connectors.sql.tables import Table, check_fields, is_integer, look_up, quoted_table, quoting
from penstock.connectors.sql.values import from_driver
from penstock.records.batch import ColumnBatch

_SETTLE_MS = 5_000


class SqlSource(Source):
    """
    Args:
        url: SQLAlchemy's; see the package.
        table: "table" or "schema.table".
        fields: which columns, and what records are (see `formats.shape`).
        key: a column that is unique and NOT NULL: rows are read in its order, and positions are values of it. Integers, text, times.
        record: another form for the same fields: "tuple", "dict" or "row".
        splits: how many ranges of an integer key are read side by side; one for each subtask unless given. Other keys are read as one range.
        follow: look for rows with greater keys at this interval; the source does not end.
        settle: of a source that follows: rows are read when a key as great as theirs has been there for so long. What is committed later with
            a smaller key is not seen. 5 s unless given; none for SQLite, where one transaction writes at a time.
        start: rows behind this value of the key; "latest": what comes. All rows unless given.
        password_file: holds the password; read at every connection.
    """

    def __init__(
        self,
        url: str,
        table: str,
        fields: Declaration,
        *,
        key: str,
        record: str | None = None,
        splits: int | None = None,
        follow: TimeLike | None = None,
        settle: TimeLike | None = None,
        start: Any = None,
        password_file: str = "",
    ) -> None:
        package()
        self.server = Server(url, password_file)
        self.table = table
        self.shape = RecordShape.of(fields, record)
        self.key = key
        self.splits = splits
        self.follow_ms = None if follow is None else as_millis(follow, "follow")
        unless_given = 0 if self.server.parsed().get_backend_name() == "sqlite" else _SETTLE_MS
        self.settle_ms = unless_given if settle is None else as_millis(settle, "settle")
        self.latest = isinstance(start, str) and start == "latest"
        self.start = None if start is None or self.latest else position_of(start)
        self.bounded = self.follow_ms is None
        if splits is not None and (splits < 1 or follow is not None):
            raise InvalidJob(f"splits={splits}", remedy="1 or more, and none for a source that follows its table")
        if self.bounded and (self.latest or settle is not None):
            raise InvalidJob("start='latest' or settle= of a bounded source", remedy="give follow=timedelta(…)")

    def look(self, connection: Any) -> Table:
        """The table as it is.

        Raises:
            InvalidJob: it has no such columns, or the key is none.
            SourceError: there is no such table or right.
        """
        table = look_up(connection, self.server, self.table, SourceError)
        check_fields(self.shape.schema, table, writes=False)
        if self.key not in table.columns or frozenset([self.key]) not in table.unique:
            raise InvalidJob(
                f"key={self.key!r} of table {table.sql} is no column that is NOT NULL and has a unique index of its own",
                remedy="rows are found again by it after a failure: name such a column, a primary key",
            )
        return table

    def create_enumerator(self) -> SplitEnumerator:
        return SqlEnumerator(self)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return SqlReader(self)

    def produced_type(self) -> Any:
        return self.shape.produced_type()

    def validate(self) -> None:
        """
        Raises:
            InvalidJob: the table has no such columns, or the key is none.
            SourceError: the server does not answer or does not let us, or there is no such table or right.
        """
        reader = SqlReader(self)
        connection = self.server.connect(SourceError, autocommit=True)
        try:
            self.look(connection)
        finally:
            connection.close()
        try:
            reader.page(None, None, 1)
        finally:
            reader.close()


class SqlEnumerator(SplitEnumerator):
    """Ranges are found once. `after` and `up_to`: of a range, None: from the first, or on and on."""

    forgets_finished = True

    def __init__(self, source: SqlSource) -> None:
        self._source = source
        self._found = False

    def discover(self) -> list[Split]:
        if self._found:
            return []
        source = self._source
        connection = source.server.connect(SourceError, autocommit=True)
        try:
            table = source.look(connection)
        finally:
            connection.close()
        reader = SqlReader(source)
        try:
            least, most = reader.end("asc", source.start), reader.end("desc", source.start)
        finally:
            reader.close()
        self._found = True
        if not source.bounded:
            after = most if source.latest else source.start
            return [Split("follow", {"after": after, "up_to": None})]
        if least is None or most is None:
            return []
        if not is_integer(table.columns[source.key]) or not isinstance(most, int):
            return [Split(f"up to {most}", {"after": source.start, "up_to": most})]
        parts = ranges(int(least), most + 1, source.splits or max(1, self.parallelism))
        return [
            Split(f"{low}-{high}", {"after": low - 1, "up_to": high - 1}, high - low)
            for low, high in parts
            if high > low
        ]

    def snapshot(self) -> Any:
        return self._found

    def restore(self, state: Any) -> None:
        self._found = bool(state)


class SqlReader(SourceReader):
    """One connection for all splits of a subtask."""

    def __init__(self, source: SqlSource) -> None:
        self.source = source
        self._mark = source.server.database.mark
        self._connection: Any = None

    def open_split(self, split: Split, position: Any) -> SplitReader:
        return RangeReader(self, split.properties["after"], split.properties["up_to"], position)

    def page(self, after: Any, up_to: Any, limit: int) -> list[Any]:
        """Rows behind a position and up to another; the last value of each is its key."""
        return self._query([*self.source.shape.names, self.source.key], after, up_to, "asc", limit)

    def end(self, direction: str, after: Any = None) -> Any:
        """The position of the least or the greatest key that can be seen now; None: there is no row."""
        rows = self._query([self.source.key], after, None, direction, 1)
        return position_of(rows[0][0]) if rows else None

    def _query(self, names: list[str], after: Any, up_to: Any, direction: str, limit: int) -> list[Any]:
        """A lost connection is made anew.

        Raises:
            SourceError: the server is lost for half a minute, or refuses the statement.
        """
        attempt, until, server = 0, 0.0, self.source.server
        while True:
            try:
                if self._connection is None:
                    self._connection = server.connect(SourceError, autocommit=True)
                return self._rows(names, after, up_to, direction, limit)
            except (SourceError, package("sqlalchemy.exc").DBAPIError) as error:
                self.close()
                cause = error.__cause__ if isinstance(error, SourceError) else error
                until = until or time.monotonic() + PATIENCE_S
                if not isinstance(cause, Exception) or not server.is_lost(cause) or time.monotonic() > until:
                    if isinstance(error, SourceError):
                        raise
                    told = server.explained(SourceError, f"table {self.source.table!r} cannot be read", error)
                    raise told from error
            time.sleep(pause(attempt))
            attempt += 1

    def _rows(self, names: list[str], after: Any, up_to: Any, direction: str, limit: int) -> list[Any]:
        quote = quoting(self._connection)
        key = quote(self.source.key)
        bounds = [(f"{key} > {self._mark}", after), (f"{key} <= {self._mark}", up_to)]
        given = [(text, key_of(value)) for text, value in bounds if value is not None]
        where = f" where {' and '.join(text for text, _ in given)}" if given else ""
        table = quoted_table(self._connection, self.source.table)
        statement = (
            f"select {', '.join(map(quote, names))} from {table}{where} order by {key} {direction} limit {limit}"
        )
        return list(self._connection.exec_driver_sql(statement, tuple(value for _, value in given)).fetchall())

    def close(self) -> None:
        connection, self._connection = self._connection, None
        let_go(connection)


class RangeReader(SplitReader):
    """Reads pages of rows. What follows its table reads up to a key that has been there for some time."""

    def __init__(self, reader: SqlReader, after: Any, up_to: Any, position: Any) -> None:
        self._reader = reader
        self._after = after if position is None else position
        self._up_to = up_to
        self._follows = up_to is None
        self._safe: Any = up_to
        self._noted: deque[tuple[float, Any]] = deque()
        self._next_look = 0.0
        self._finished = False

    def read(self, bounds: ReadBounds) -> ColumnBatch | None:
        if self._finished or (self._follows and self._safe is None and not self._look()):
            return None
        limit = max(1, bounds.max_records)
        rows = self._reader.page(self._after, self._safe, limit)
        if rows:
            self._after = position_of(rows[-1][-1])
        if len(rows) < limit:
            self._finished = not self._follows
            if self._follows:
                self._after, self._safe = self._safe, None
        if not rows:
            return None
        shape = self._reader.source.shape
        values = from_driver([row[:-1] for row in rows], shape.schema)
        return ColumnBatch(columns_of(values, shape), None, shape.maker)

    def _look(self) -> bool:
        """Whether there is something to read."""
        now, source = time.monotonic(), self._reader.source
        if now >= self._next_look:
            self._next_look = now + (source.follow_ms or 0) / 1000
            most = self._reader.end("desc", self._after)
            newest = self._noted[-1][1] if self._noted else self._after
            if most is not None and most != newest:
                self._noted.append((time.monotonic(), most))
        while self._noted and self._noted[0][0] + source.settle_ms / 1000 <= time.monotonic():
            self._safe = self._noted.popleft()[1]
        return self._safe is not None

    @property
    def position(self) -> Any:
        return self._after

    @property
    def finished(self) -> bool:
        return self._finished

    def next_record_at(self) -> int | None:
        if not self._follows or self._safe is not None:
            return None
        due = self._next_look
        if self._noted:
            due = min(due, self._noted[0][0] + self._reader.source.settle_ms / 1000)
        return int((time.time() + max(0.0, due - time.monotonic())) * 1000)

    def close(self) -> None:
        self._noted.clear()
