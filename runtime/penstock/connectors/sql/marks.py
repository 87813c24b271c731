"""Conversion of the `?` of a statement to the placeholders of a driver."""

from __future__ import annotations

import re
from collections.abc import Iterator

_PARTS = re.compile(
    r"(?P<quoted>'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/)|(?P<two>\?\?)|(?P<mark>\?)",
    re.DOTALL,
)
"""Parts of a statement. Quoted text and comments contain no placeholders. A backslash escapes a quote, as in MySQL."""
_STANDARD = re.compile(
    r"(?P<quoted>'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/)|(?P<two>\?\?)|(?P<mark>\?)", re.DOTALL
)


def count_marks(statement: str, dialect: str = "mysql") -> int:
    """Return the number of placeholders.

    >>> count_marks("insert into t values (?, '?', ?) -- ?")
    2
    """
    return sum(part == "?" for is_mark, part in _split(statement, dialect) if is_mark)


def with_marks(statement: str, mark: str, dialect: str = "mysql") -> str:
    """Return the statement with the driver's placeholders. `??` stands for Postgres's operator `?`.

    >>> with_marks("insert into t values (?, '100 %?')", "%s")
    "insert into t values (%s, '100 %%?')"
    """
    parts = []
    for is_mark, part in _split(statement, dialect):
        if is_mark:
            parts.append(mark if part == "?" else "?" if dialect == "postgresql" else mark * 2)
        else:
            parts.append(part.replace("%", "%%") if mark == "%s" else part)
    return "".join(parts)


def with_names(statement: str, dialect: str) -> str:
    """Return the statement for `sqlalchemy.text`, with the names p0, p1, … for values.

    >>> with_names("insert into t values (?, 'a:b', ?)", "oracle")
    "insert into t values (:p0, 'a\\\\:b', :p1)"
    """
    parts, count = [], 0
    for is_mark, part in _split(statement, dialect):
        if is_mark and part == "?":
            parts.append(f":p{count}")
            count += 1
        else:
            parts.append(part.replace(":", "\\:"))
    return "".join(parts)


def _split(statement: str, dialect: str) -> Iterator[tuple[bool, str]]:
    """Yield the parts of the statement: text (False) and placeholders (True)."""
    end = 0
    for found in (_PARTS if dialect in ("mysql", "mariadb") else _STANDARD).finditer(statement):
        yield False, statement[end : found.start()]
        yield found["quoted"] is None, found[0]
        end = found.end()
    yield False, statement[end:]
