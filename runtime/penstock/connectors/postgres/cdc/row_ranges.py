"""The reader of one range of the key. It reads the existing rows, before the source reads the changes. Each of its
connections reads in one snapshot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.common.errors import SourceError
from penstock.connectors.core.source import ReadBounds, Split, SplitReader
from penstock.connectors.postgres.cdc.changes import Captured
from penstock.connectors.postgres.cdc.columns import CapturedTable, TableValues, type_name
from penstock.connectors.postgres.cdc.messages import Values
from penstock.connectors.postgres.client import is_lost, named, package
from penstock.records.batch import RowBatch

if TYPE_CHECKING:
    from penstock.connectors.postgres.cdc.settings import CdcSettings

TRIES = 6
_FIRST_STEP = 10
_LARGEST_STEP = 10_000
"""Rows per fetch: `_FIRST_STEP` until their size is known, `_LARGEST_STEP` at most."""
_NO_IDLE_TIMEOUT = "set idle_in_transaction_session_timeout = 0"
"""Setting that keeps the snapshot while downstream operators are slow."""
_AS_THEY_ARE = ("text", "varchar")
"""Types whose cast to text gives the same text as the log. A query with the cast may use an index.

For bool, char(n) or inet, the text of the cast differs from the log. For all types, `concat` gives the same text as the log.
"""


class RowRangeReader(SplitReader):
    """Reader of one range of the key. The position of the reader has:

    - `parts`: pairs of a key and the snapshot in which the range was read up to this key,
    - `snapshot` and `after`: the current snapshot, and the last key that was read in this snapshot,
    - `lsn`: the end of the log just after a snapshot began. The snapshot sees no transaction that commits after this position.
    """

    def __init__(self, source: CdcSettings, split: Split, position: Any) -> None:
        self._source = source
        self._about = split.properties
        self._table = CapturedTable.of(self._about["captured"])
        position = position or {"parts": [], "after": None, "snapshot": None, "lsn": "0/0"}
        self._parts: list[list[Any]] = [list(part) for part in position["parts"]]
        self._after = position["after"]
        self._snapshot: str | None = position["snapshot"]
        self._lsn: str = position["lsn"]
        self._finished = False
        self._connection: Any = None
        self._values: TableValues | None = None
        self._step = _FIRST_STEP

    @property
    def position(self) -> Any:
        return {
            "parts": [list(part) for part in self._parts],
            "after": self._after,
            "snapshot": self._snapshot,
            "lsn": self._lsn,
        }

    @property
    def finished(self) -> bool:
        return self._finished

    def read(self, bounds: ReadBounds) -> RowBatch | None:
        for attempt in range(TRIES):
            try:
                return self._read(max(1, bounds.max_records), bounds.max_bytes)
            except (SourceError, package().Error) as error:
                self.close()
                lost = is_lost(error) or isinstance(error.__cause__, package().OperationalError)
                if lost and attempt < TRIES - 1:
                    time.sleep(0.1 * 2**attempt)
                    continue
                if isinstance(error, SourceError):
                    raise
                problem = f"rows of {self._table.name!r} cannot be read"
                raise self._source.server.explained(SourceError, problem, error) from error
        raise AssertionError("unreachable")

    def _read(self, most: int, most_bytes: int) -> RowBatch | None:
        if self._finished:
            return None
        if self._connection is None:
            self._open()
        rows: list[Values] = []
        size, ended = 0, False
        while not ended and len(rows) < most and (size < most_bytes or not rows):
            step = min(most - len(rows), self._step)
            fetched = self._fetch(step)
            ended = len(fetched) < step
            rows += fetched
            size += sum(len(value) for row in fetched for value in row if value is not None)
            if size:
                self._step = max(1, min(_LARGEST_STEP, (most_bytes - size) * len(rows) // size))
        if size:
            self._step = max(1, min(_LARGEST_STEP, most_bytes * len(rows) // size))
        assert self._values is not None
        if ended:
            self._parts.append([None, self._snapshot])
            self._after, self._snapshot, self._finished = None, None, True
            self.close()
        elif rows:
            self._after = self._values.key_of(rows[-1])
        if not rows:
            return None
        values, at = self._values, self._about["at"]
        captured = [Captured(values, "read", None, row, False, 0, 0, 0, at) for row in rows]
        return RowBatch(*self._source.records.of(captured))

    def _fetch(self, count: int) -> list[Values]:
        cursor = self._connection.execute(f"fetch forward {count} from penstock_rows")
        result, columns = cursor.pgresult, len(cursor.description)
        if self._values is None:
            described = [(column.name, column.type_code) for column in cursor.description]
            source = self._source
            shape = source.tables[self._table.name]
            self._values = TableValues(self._table, described, shape, form=source.form, follows=source.follows)
        return [[result.get_value(row, column) for column in range(columns)] for row in range(result.ntuples)]

    def _open(self) -> None:
        """Open a cursor in a new snapshot, and note what was read in the previous snapshot."""
        connection = self._connection = self._source.server.connect(SourceError, autocommit=True)
        connection.execute(_NO_IDLE_TIMEOUT)
        connection.autocommit = False
        connection.execute("set transaction isolation level repeatable read, read only")
        if self._snapshot is not None and self._after is not None:
            self._parts.append([self._after, self._snapshot])
        self._snapshot = connection.execute("select pg_current_snapshot()::text").fetchone()[0]
        self._lsn = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()[0]
        statement, values = self._statement()
        connection.execute(f"declare penstock_rows no scroll cursor for {statement}", values)

    def _statement(self) -> tuple[str, list[Any]]:
        table, about = self._table, self._about
        columns = ", ".join(named(name) for name, _ in table.columns)
        parts = [named(name) for name in table.key]
        if not table.has_integer_key:
            types = dict(table.columns)
            parts = [
                f'{part}::text collate "C"' if type_name(types[name]) in _AS_THEY_ARE else f'concat({part}) collate "C"'
                for name, part in zip(table.key, parts, strict=True)
            ]
        order = ", ".join(parts)
        after = about["low"] if self._after is None else self._after
        conditions = [f"({about['filter'].replace('%', '%%')})"] if about["filter"] else []
        values: list[Any] = []
        if after is not None:
            conditions.append(f"({order}) > ({', '.join(['%s'] * len(parts))})")
            values += after if isinstance(after, list) else [after]
        if about["high"] is not None:
            conditions.append(f"{order} <= %s")
            values.append(about["high"])
        where = f" where {' and '.join(conditions)}" if conditions else ""
        return f"select {columns} from {named(about['table'])}{where} order by {order}", values

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
