"""Sources that read the rows of a table in the order of a key: all rows once, or new rows continuously.

The enumerator finds ranges of the key once. A reader reads a range page by page. The position of a range is the last key that was read.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, TypeVar

from penstock.common.errors import InvalidJob, SourceError
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.core.source import (
    OneTimeEnumerator,
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.connectors.formats.bulk import columns_of_read
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.connectors.simple.sequence import ranges
from penstock.connectors.tables.columns import TableDefinition
from penstock.connectors.tables.server import Reconnecting, TableServer, pauses
from penstock.records.batch import ColumnBatch

T = TypeVar("T")


class TableSourceOptions(TypedDict, total=False):
    """Keyword arguments of the sources of all databases."""

    record: str | None
    """Another type for the same fields: "tuple", "dict" or "row"."""
    splits: int | None
    """Number of ranges of an integer key that are read in parallel; by default one for each subtask. Other keys form one range."""
    follow: TimeLike | None
    """Interval at which the source polls for rows with greater keys. A source with an interval does not end."""
    start: Any
    """Key after which to start: the source reads only rows with greater keys. "latest" means only new rows. By default it reads all rows."""


class TableSource(Source):
    """Base class of the sources of all databases.

    Args:
        table: "table" or "schema.table".
        fields: the columns to read, and the type of the records (see `formats.shape`).
        key: a column that is unique and NOT NULL.

    Raises:
        InvalidJob: the settings contradict each other.
    """

    def __init__(
        self,
        server: TableServer,
        table: str,
        fields: Declaration,
        *,
        key: str,
        record: str | None = None,
        splits: int | None = None,
        follow: TimeLike | None = None,
        start: Any = None,
    ) -> None:
        self.server = server
        self.table = table
        self.shape = RecordShape.of(fields, record)
        self.key = key
        self.splits = splits
        self.follow_ms = None if follow is None else as_millis(follow, "follow")
        self.latest = isinstance(start, str) and start == "latest"
        self.start = None if start is None or self.latest else self.position_of(start)
        self.bounded = self.follow_ms is None
        if splits is not None and (splits < 1 or follow is not None):
            raise InvalidJob(
                f"splits={splits} is not valid", remedy="set splits to at least 1. Remove splits if follow is set"
            )
        if self.latest and self.bounded:
            raise InvalidJob(
                "start='latest' needs follow=, because a bounded source reads the existing rows",
                remedy="set follow=timedelta(…)",
            )

    @abstractmethod
    def position_of(self, key: Any) -> Any:
        """Return the value of a key as a position, which is JSON."""

    @abstractmethod
    def is_integer_key(self, table: TableDefinition, greatest: Any) -> bool:
        """Return whether the key has integers.

        Args:
            greatest: the position of the greatest key.
        """

    @abstractmethod
    def _definition(self, connection: Any) -> TableDefinition:
        """Return the table's definition, after checks of its columns and of the user's rights."""

    @abstractmethod
    def reader(self) -> TableReader: ...

    def definition(self, connection: Any) -> TableDefinition:
        """Read the definition of the table.

        Raises:
            InvalidJob: the table does not have the fields' columns, or the key is not unique.
            SourceError: the table or a right is missing.
        """
        table = self._definition(connection)
        if self.key not in table.columns or frozenset([self.key]) not in table.unique:
            raise InvalidJob(
                f"key={self.key!r} of table {table.sql} is not a NOT NULL column with a unique index of this column alone",
                remedy="pass such a column, for example the primary key. After a failure, the source continues after the last key that it has read",
            )
        return table

    def create_enumerator(self) -> SplitEnumerator:
        return KeyRangeEnumerator(self)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return self.reader()

    def produced_type(self) -> Any:
        return self.shape.produced_type()

    def validate(self) -> None:
        """Check the connection, the table and the user's rights.

        Raises:
            InvalidJob: the table does not have the fields' columns, or the key is not unique.
            SourceError: the server does not respond or refuses the user, or the table or a right is missing.
        """
        with self.server.session(SourceError) as connection:
            self.definition(connection)


class KeyRangeEnumerator(OneTimeEnumerator):
    """Enumerator of the ranges of the key.

    A range has two ends: `after` (None means from the first row) and `up_to` (None means without end).
    """

    def __init__(self, source: TableSource) -> None:
        super().__init__()
        self._source = source

    def find_splits(self) -> list[Split]:
        source = self._source
        with source.server.session(SourceError) as connection:
            table = source.definition(connection)
        reader = source.reader()
        try:
            least, greatest = reader.end("asc", source.start), reader.end("desc", source.start)
        finally:
            reader.close()
        if not source.bounded:
            after = greatest if source.latest else source.start
            return [Split("follow", {"after": after, "up_to": None})]
        if least is None or greatest is None:
            return []
        if not source.is_integer_key(table, greatest):
            return [Split(f"up to {greatest}", {"after": source.start, "up_to": greatest})]
        position = source.position_of
        parts = ranges(int(least), int(greatest) + 1, source.splits or max(1, self.parallelism))
        return [
            Split(f"{low}-{high}", {"after": position(low - 1), "up_to": position(high - 1)}, high - low)
            for low, high in parts
            if high > low
        ]


class TableReader(Reconnecting, SourceReader):
    """Reader of a subtask. All of its splits share one connection."""

    def __init__(self, source: TableSource) -> None:
        super().__init__(source.server, SourceError, autocommit=True)
        self.source = source

    @abstractmethod
    def page(self, after: Any, up_to: Any, limit: int) -> list[Any]:
        """Return rows after one position and up to another. The last value of each row is its key."""

    @abstractmethod
    def end(self, direction: str, after: Any = None) -> Any:
        """Return the position of the smallest ("asc") or greatest ("desc") visible key, or None if no row exists."""

    def records(self, rows: Sequence[Any]) -> ColumnBatch:
        """Return the rows as records. Unlike the rows of `page`, these rows contain only the fields and not the key as last value."""
        return ColumnBatch(columns_of_read(rows, self.source.shape), None, self.source.shape.maker)

    def query(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, and reconnect if the connection is lost.

        Raises:
            SourceError: the server is lost for longer than `patience_s`, or refuses the statement.
        """
        problem = f"table {self.source.table!r} cannot be read"
        return self._retried(
            work,
            lambda error, _: self._server.explained(SourceError, problem, error),
            pauses(self._server.patience_s),
        )


class KeyRangeReader(SplitReader):
    """Reader of one range, page by page.

    A source with `follow` reads only up to a safe key. A key is safe if no row with a smaller key can appear later.
    """

    def __init__(self, reader: TableReader, split: Split, position: Any) -> None:
        self._reader = reader
        self._follow_s = (reader.source.follow_ms or 0) / 1000
        self._after = split.properties["after"] if position is None else position
        self._safe: Any = split.properties["up_to"]
        self._follows = self._safe is None
        self._next_poll = 0.0
        self._finished = False

    @abstractmethod
    def _poll(self) -> None:
        """Query the server for new keys. Set `_safe` to a key that has become safe."""

    def _settle(self) -> None:
        """Set `_safe` to a key that has become safe, without a request to the server."""

    def read(self, bounds: ReadBounds) -> ColumnBatch | None:
        if self._finished or (self._follows and self._safe is None and not self._finds_rows()):
            return None
        limit = max(1, bounds.max_records)
        rows = self._reader.page(self._after, self._safe, limit)
        if rows:
            self._after = self._reader.source.position_of(rows[-1][-1])
        if len(rows) < limit:
            self._finished = not self._follows
            if self._follows:
                self._after, self._safe = self._safe, None
        return self._reader.records([row[:-1] for row in rows]) if rows else None

    def _finds_rows(self) -> bool:
        """Poll the server if the interval has passed, and return whether rows can be read."""
        now = time.monotonic()
        if now >= self._next_poll:
            self._next_poll = now + self._follow_s
            self._poll()
        self._settle()
        return self._safe is not None

    @property
    def position(self) -> Any:
        return self._after

    @property
    def finished(self) -> bool:
        return self._finished

    def _due(self) -> float:
        """Return the time of the next attempt to find a safe key, by the monotonic clock."""
        return self._next_poll

    def next_record_at(self) -> int | None:
        if not self._follows or self._safe is not None:
            return None
        return int((time.time() + max(0.0, self._due() - time.monotonic())) * 1000)
