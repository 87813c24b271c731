"""A session without Flink's planner, for tests of clients."""

from __future__ import annotations

import queue
import threading
from typing import Any, cast

from penstock.common.types import Row, RowKind
from penstock.sql.planner.process import error_of
from penstock.table.client.client_session import ClientSession
from penstock.table.table_environment import TableConfig
from penstock.table.table_result import TableResult


class Changes:
    """The changes of a query that runs until it is cancelled."""

    def __init__(self, *rows: Row, endless: bool = True) -> None:
        self.queue: queue.Queue[Row | BaseException | None] = queue.Queue()
        self.is_cancelled = threading.Event()
        self.is_closed = False
        for row in rows:
            self.queue.put(row)
        if not endless:
            self.queue.put(None)

    def __iter__(self):
        return self

    def __next__(self):
        found = self.queue.get(timeout=30)
        if isinstance(found, BaseException):
            raise found
        if found is None:
            raise StopIteration
        return found

    def cancel(self):
        self.is_cancelled.set()
        self.queue.put(None)

    def close(self):
        self.is_closed = True


class FakeEnvironment:
    """An environment with the table `numbers (n, v)`. `SELECT` returns the changes that the test sets."""

    def __init__(self) -> None:
        self._options = {"table.local-time-zone": "UTC"}
        self.executed: list[str] = []
        self.changes = Changes(row(1, "a"), row(2, "b"), endless=False)

    def get_config(self):
        return TableConfig(lambda key, value: self._options.update({key: value}), self._options)

    def _reset_options(self, key=None):
        for name in list(self._options) if key is None else [key]:
            self._options.pop(name, None)

    def execute_sql(self, statement: str) -> TableResult:
        self.executed.append(statement)
        words = statement.upper().split()
        if words[:2] == ["SHOW", "TABLES"]:
            return TableResult.of_rows(["table name"], [("numbers",), ("order",)])
        if words[:2] == ["SHOW", "FUNCTIONS"]:
            return TableResult.of_rows(["function name"], [("abs",), ("!=",)])
        if words[0] == "DESCRIBE":
            return TableResult.of_rows(["name", "type"], [("n", "INT"), ("v", "STRING")])
        if words[0] == "SELECT" and "MISSING" not in words:
            return TableResult(["n", "v"], lambda: self.changes, changelog=True)
        if words[0] == "CREATE":
            return TableResult.of_rows(["result"], [("OK",)])
        lines = statement.splitlines()
        number = next(index for index, line in enumerate(lines, 1) if line.strip())
        column = len(lines[number - 1]) - len(lines[number - 1].lstrip()) + 1
        message = f"a.SqlParserException: SQL parse failed. Encountered a word at line {number}, column {column}."
        raise error_of([message], statement)


def row(*values, kind: RowKind = RowKind.INSERT) -> Row:
    found = Row(*values)
    found.set_row_kind(kind)
    return found


def fake_session():
    return cast("Any", ClientSession(cast("Any", FakeEnvironment())))
