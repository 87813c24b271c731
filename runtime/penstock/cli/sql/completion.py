"""`SqlCompleter`: completes keywords, tables, columns and functions in the shell."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prompt_toolkit.completion import Completer, Completion

from penstock.common.errors import PenstockError
from penstock.table.client.statements import split

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from penstock.table.client.client_session import ClientSession

KEYWORDS = [
    "ALTER",
    "AND",
    "AS",
    "ASC",
    "BEGIN",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "CATALOG",
    "CATALOGS",
    "CREATE",
    "CROSS",
    "CUMULATE",
    "CURRENT",
    "DATABASE",
    "DATABASES",
    "DELETE",
    "DESC",
    "DESCRIBE",
    "DESCRIPTOR",
    "DISTINCT",
    "DROP",
    "ELSE",
    "END",
    "EXCEPT",
    "EXECUTE",
    "EXISTS",
    "EXPLAIN",
    "FALSE",
    "FIRST",
    "FOLLOWING",
    "FOR",
    "FROM",
    "FULL",
    "FUNCTIONS",
    "GROUP",
    "HAVING",
    "HOP",
    "IF",
    "IN",
    "INNER",
    "INSERT",
    "INTERSECT",
    "INTERVAL",
    "INTO",
    "IS",
    "JOBS",
    "JOIN",
    "LAST",
    "LEFT",
    "LIKE",
    "LIMIT",
    "MATCH_RECOGNIZE",
    "NOT",
    "NULL",
    "NULLS",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "OVERWRITE",
    "PARTITION",
    "PARTITIONED",
    "PLAN",
    "PRECEDING",
    "PRIMARY",
    "KEY",
    "ENFORCED",
    "QUIT",
    "RANGE",
    "RESET",
    "RIGHT",
    "ROW",
    "ROWS",
    "SELECT",
    "SESSION",
    "SET",
    "SHOW",
    "STATEMENT",
    "STOP",
    "JOB",
    "TABLE",
    "TABLES",
    "TEMPORARY",
    "THEN",
    "TRUE",
    "TUMBLE",
    "UNBOUNDED",
    "UNION",
    "ALL",
    "UNNEST",
    "USE",
    "USING",
    "VALUES",
    "VIEW",
    "VIEWS",
    "WATERMARK",
    "WHEN",
    "WHERE",
    "WINDOW",
    "WITH",
    "SYSTEM_TIME",
    "OF",
]
_WORD = re.compile(r"[\w`$.]*$")
_NAMES = re.compile(r"\b(?:FROM|JOIN|INTO|TABLE|UPDATE|DESCRIBE|,)\s+(`[^`]+`|[\w.`]+)", re.IGNORECASE)
_MAX_TABLES = 8
"""Number of tables of a statement whose columns are completed."""


class SqlCompleter(Completer):  # type: ignore[misc] # the package is optional
    """Completes the word before the cursor. The names come from the session and are read again after each statement."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._names: dict[str, list[str]] = {}

    def refresh(self) -> None:
        """Forget the names, because a statement may have changed them."""
        self._names.clear()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        if split(before).is_open:
            return  # inside of a string or a comment
        found = _WORD.search(before)
        word = found[0] if found else ""
        typed = word.lstrip("`").lower()
        columns = self.columns(document.text)
        for meta, names in (("column", columns), ("table", self.tables()), ("function", self.functions())):
            for name in names:
                if name.lower().startswith(typed):
                    yield Completion(
                        name if meta == "function" else _quoted(name), -len(word), display=name, display_meta=meta
                    )
        if typed:
            for keyword in KEYWORDS:
                if keyword.lower().startswith(typed):
                    yield Completion(
                        keyword if word[0].isupper() else keyword.lower(), -len(word), display_meta="keyword"
                    )

    def tables(self) -> list[str]:
        return self._of("SHOW TABLES")

    def functions(self) -> list[str]:
        return [name for name in self._of("SHOW FUNCTIONS") if name.isidentifier()]

    def columns(self, text: str) -> list[str]:
        """Return the columns of the tables that the statement names."""
        found: dict[str, None] = {}
        known = {name.lower() for name in self.tables()}
        for name in list(dict.fromkeys(match[1] for match in _NAMES.finditer(text)))[:_MAX_TABLES]:
            if name.strip("`").rpartition(".")[2].lower() in known:
                found.update(dict.fromkeys(self._of(f"DESCRIBE {name}")))
        return list(found)

    def _of(self, statement: str) -> list[str]:
        if statement not in self._names:
            try:
                self._names[statement] = [str(row[0]) for row in self._session.env.execute_sql(statement).collect()]
            except PenstockError:
                self._names[statement] = []
        return self._names[statement]


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) and name.upper() not in KEYWORDS else f"`{name}`"
