"""Rows of SQL in streams: their kinds, their keys and their event time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.sql.plan.nodes import Column, refusal
from penstock.sql.plan.types import BYTES, INTEGERS, STRINGS

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
"""The kinds of changes. The numbers are those of `RowKind`."""
RETRACTIONS = (UPDATE_BEFORE, DELETE)

SqlRow = tuple[Any, ...]
Change = tuple[int, SqlRow]


_NAN = "NaN"
"""The value of NaN in keys. NaN is not equal to itself in Python, but it is one key in SQL."""


def floats_of(indexes: tuple[int, ...], columns: tuple[Column, ...]) -> tuple[int, ...]:
    """Return the positions in `indexes` of columns that can contain NaN."""
    return tuple(place for place, index in enumerate(indexes) if columns[index].type.name in ("DOUBLE", "FLOAT"))


def check_key(columns: Iterable[Column]) -> None:
    """Check that the columns can be a key.

    Raises:
        InvalidJob: a column is a map or a multiset, which has no hash.
    """
    for column in columns:
        if column.type.contains("MAP", "MULTISET"):
            raise refusal(
                f"the column {column.name} of the type {column.type} cannot be a key",
                "use another column, or CAST it to STRING",
            )


@dataclass(frozen=True)
class KeyOf:
    """A key selector: the values of some columns. Without columns, all rows have the same key.

    Args:
        floats: positions in `columns` of columns that can contain NaN.

    >>> KeyOf((1,))(("a", 2)), KeyOf((0,), changelog=True)((0, ("a", 2)))
    ((2,), ('a',))
    """

    columns: tuple[int, ...]
    changelog: bool = False
    floats: tuple[int, ...] = ()

    def __call__(self, value: Any) -> Any:
        row = value[1] if self.changelog else value
        if not self.columns:
            return 0
        key = tuple([row[index] for index in self.columns])
        return _comparable(key, self.floats) if self.floats else key


def _comparable(key: SqlRow, floats: tuple[int, ...]) -> SqlRow:
    for place in floats:
        if key[place] != key[place]:
            key = (*key[:place], _NAN, *key[place + 1 :])
    return key


def identity_of(columns: tuple[Column, ...], indexes: tuple[int, ...] | None = None) -> Callable[[SqlRow], SqlRow]:
    """Return a function from a row to a value that is equal for equal rows, also if they contain NaN.

    Args:
        indexes: columns that identify a row. None means all columns.

    >>> from penstock.sql.plan.types import SqlType
    >>> identity = identity_of((Column("x", SqlType("DOUBLE")),))
    >>> identity((float("nan"),)) == identity((float("nan"),))
    True
    """
    if indexes is not None:
        return KeyOf(indexes, floats=floats_of(indexes, columns)) if indexes else _nothing
    floats = floats_of(tuple(range(len(columns))), columns)
    return _Identity(floats) if floats else _same


@dataclass(frozen=True)
class _Identity:
    floats: tuple[int, ...]

    def __call__(self, row: SqlRow) -> SqlRow:
        return _comparable(row, self.floats)


def _same(row: SqlRow) -> SqlRow:
    return row


def _nothing(row: SqlRow) -> SqlRow:
    return ()


_SAME_AS_KEY = (
    *INTEGERS,
    *STRINGS,
    *BYTES,
    "DATE",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMP_LTZ",
    "INTERVAL_MS",
    "INTERVAL_MONTHS",
)


class Grouping:
    """The values of the columns of a key in results.

    State returns the same key for values that are equal in Python, such as 1 and 1.0. So the values must be stored if their type has values
    that are equal to values of another type.
    """

    def __init__(self, indexes: tuple[int, ...], columns: tuple[Column, ...]) -> None:
        self._indexes = indexes
        self._is_stored = any(columns[index].type.name not in _SAME_AS_KEY for index in indexes)

    def stored(self, row: SqlRow) -> SqlRow | None:
        """Return the values to store with the state of the key, or None if the key has them."""
        return tuple([row[index] for index in self._indexes]) if self._is_stored else None

    def values(self, key: Any, stored: SqlRow | None) -> SqlRow:
        """Return the values of the columns."""
        if stored is not None:
            return stored
        found: SqlRow = key if self._indexes else ()
        return found


@dataclass(frozen=True)
class EventTime:
    """A timestamp assigner: the milliseconds of a column of microseconds."""

    column: int

    def __call__(self, row: SqlRow) -> int:
        micros = row[self.column]
        if micros is None:
            raise ValueError(
                "the event-time column is NULL. Filter the rows, or give them a time, for example with COALESCE in a computed column"
            )
        found: int = micros // 1000
        return found


def as_changes(row: SqlRow) -> Change:
    """Return an inserted row as a change."""
    return INSERT, row
