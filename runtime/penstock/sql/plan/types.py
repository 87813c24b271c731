"""Types of columns and expressions, read from the text or the JSON of a compiled plan."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from penstock.common.errors import InvalidJob

INTEGERS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
"""Integer types with their size in bits."""
STRINGS = ("CHAR", "VARCHAR")
BYTES = ("BINARY", "VARBINARY")
NESTED = ("ARRAY", "MAP", "MULTISET", "ROW")
_ALIASES = {
    "INT": "INTEGER",
    "STRING": "VARCHAR",
    "BYTES": "VARBINARY",
    "TIMESTAMP_WITHOUT_TIME_ZONE": "TIMESTAMP",
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": "TIMESTAMP_LTZ",
    "TIME_WITHOUT_TIME_ZONE": "TIME",
}
_SIMPLE = {"BOOLEAN", *INTEGERS, "FLOAT", "DOUBLE", "DATE", "NULL", *STRINGS, *BYTES}
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|'(?:[^']|'')*'|\w+|[<>(),])")
FINEST = 6
"""Highest precision of times: microseconds, as in Python's datetime."""


@dataclass(frozen=True)
class SqlType:
    """A type of Flink's SQL.

    Args:
        name: such as `INTEGER`, `DECIMAL`, `TIMESTAMP_LTZ`, `INTERVAL_MS`, `INTERVAL_MONTHS`.
        precision: length of strings, digits of a DECIMAL, digits after the second of a time.
        fields: names and types of the fields of a ROW, with empty names for the parts of ARRAY, MAP and MULTISET.
    """

    name: str
    nullable: bool = True
    precision: int = 0
    scale: int = 0
    fields: tuple[tuple[str, SqlType], ...] = ()

    @property
    def is_integer(self) -> bool:
        return self.name in INTEGERS

    @property
    def is_number(self) -> bool:
        return self.is_integer or self.name in ("FLOAT", "DOUBLE", "DECIMAL")

    @property
    def is_time_of_day(self) -> bool:
        return self.name in ("TIMESTAMP", "TIMESTAMP_LTZ")

    @property
    def is_string(self) -> bool:
        return self.name in STRINGS

    @property
    def is_nested(self) -> bool:
        return self.name in NESTED

    @property
    def element(self) -> SqlType:
        """Type of the elements of an ARRAY or MULTISET."""
        return self.fields[0][1]

    @property
    def key(self) -> SqlType:
        """Type of the keys of a MAP."""
        return self.fields[0][1]

    @property
    def value(self) -> SqlType:
        """Type of the values of a MAP."""
        return self.fields[1][1]

    def contains(self, *names: str) -> bool:
        """Return whether the type, or a part of it at any depth, has one of these names."""
        return self.name in names or any(type.contains(*names) for _, type in self.fields)

    def __str__(self) -> str:
        suffix = "" if self.nullable else " NOT NULL"
        if self.fields:
            parts = ", ".join(f"{name} {type}".strip() for name, type in self.fields)
            return f"{self.name}<{parts}>{suffix}"
        if self.name == "DECIMAL":
            return f"DECIMAL({self.precision}, {self.scale}){suffix}"
        if self.is_time_of_day:
            return f"{self.name}({self.precision}){suffix}"
        return f"{self.name}{suffix}"


def type_of(value: Any) -> SqlType:
    """Return the type that a plan describes as text or as an object.

    >>> str(type_of("DECIMAL(12, 2) NOT NULL")), str(type_of({"type": "TIMESTAMP_WITHOUT_TIME_ZONE", "precision": 3}))
    ('DECIMAL(12, 2) NOT NULL', 'TIMESTAMP(3)')

    Raises:
        InvalidJob: Penstock does not have the type.
    """
    if isinstance(value, str):
        parser = _Parser(value)
        found = parser.type()
        parser.expect_end()
        return found
    nullable = bool(value.get("nullable", True))
    name = _ALIASES.get(value["type"], value["type"])
    if name == "ROW":
        fields = tuple((field["name"], type_of(field["fieldType"])) for field in value["fields"])
        return SqlType("ROW", nullable, fields=fields)
    if name in ("ARRAY", "MULTISET"):
        return SqlType(name, nullable, fields=(("", type_of(value["elementType"])),))
    if name == "MAP":
        return SqlType(name, nullable, fields=(("", type_of(value["keyType"])), ("", type_of(value["valueType"]))))
    if name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return _checked_precision(SqlType(name, nullable, value["precision"]))
    if name in (*STRINGS, *BYTES):  # such as the CHAR(0) of an empty literal
        return SqlType(name, nullable, value.get("length", 0))
    if name in ("SYMBOL", "NULL"):
        return SqlType(name, nullable)
    raise _refused(name)


def _refused(name: str) -> InvalidJob:
    return InvalidJob(
        f"SQL: Penstock does not support the type {name}",
        remedy="CAST the column to a type that docs/sql.md lists, or leave it out of the query",
    )


def _checked_precision(found: SqlType) -> SqlType:
    if found.precision > FINEST:
        raise InvalidJob(
            f"SQL: the type {found} is finer than microseconds",
            remedy=f"declare the column as {found.name}({FINEST}) or coarser",
        )
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _take(self, *words: str) -> bool:
        if tuple(self._tokens[self._at : self._at + len(words)]) == words:
            self._at += len(words)
            return True
        return False

    def expect_end(self) -> None:
        if self._at < len(self._tokens):
            raise _refused(self._text)

    def _numbers(self) -> list[int]:
        if not self._take("("):
            return []
        numbers = []
        while not self._take(")"):
            token = self._next()
            if not token.isdigit() and token != ",":
                raise _refused(self._text)
            if token != ",":
                numbers.append(int(token))
        return numbers

    def type(self) -> SqlType:
        name = self._next()
        found = self._named(_ALIASES.get(name, name))
        if self._take("NOT", "NULL"):
            found = replace(found, nullable=False)
        return found

    def _named(self, name: str) -> SqlType:
        if name == "ROW":
            return SqlType("ROW", fields=tuple(self._fields()))
        if name in NESTED:
            return SqlType(name, fields=tuple(self._parts(2 if name == "MAP" else 1)))
        if name == "INTERVAL":
            return self._interval()
        numbers = self._numbers()
        if name == "DECIMAL":
            return SqlType(name, precision=numbers[0], scale=numbers[1] if len(numbers) > 1 else 0)
        if name == "TIME":
            return SqlType(name, precision=numbers[0] if numbers else 0)
        if name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
            if self._take("WITH", "LOCAL", "TIME", "ZONE"):
                name = "TIMESTAMP_LTZ"
            return _checked_precision(SqlType(name, precision=numbers[0] if numbers else FINEST))
        if name in _SIMPLE:
            return SqlType(name, precision=numbers[0] if numbers else 0)
        raise _refused(self._text)

    def _interval(self) -> SqlType:
        units = [self._next()]
        self._numbers()
        if self._take("TO"):
            units.append(self._next())
            self._numbers()
        return SqlType("INTERVAL_MONTHS" if units[0] in ("YEAR", "MONTH") else "INTERVAL_MS")

    def _parts(self, count: int) -> list[tuple[str, SqlType]]:
        if not self._take("<"):
            raise _refused(self._text)
        parts = [("", self.type())]
        while len(parts) < count and self._take(","):
            parts.append(("", self.type()))
        if len(parts) < count or not self._take(">"):
            raise _refused(self._text)
        return parts

    def _fields(self) -> list[tuple[str, SqlType]]:
        fields = []
        if not self._take("<"):
            raise _refused(self._text)
        while not self._take(">"):
            name = self._next()
            if name == "," or name.startswith("'"):  # a comma, or the comment of a field
                continue
            fields.append((name.strip("`").replace("``", "`"), self.type()))
        return fields
