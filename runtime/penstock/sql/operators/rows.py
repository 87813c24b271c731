"""Rows of SQL in streams: their kinds, their keys and their event time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
"""The kinds of changes. The numbers are those of `RowKind`."""
RETRACTIONS = (UPDATE_BEFORE, DELETE)

SqlRow = tuple[Any, ...]
Change = tuple[int, SqlRow]


@dataclass(frozen=True)
class KeyOf:
    """A key selector: the values of some columns. Without columns, all rows have the same key.

    >>> KeyOf((1,))(("a", 2)), KeyOf((0,), changelog=True)((0, ("a", 2)))
    ((2,), ('a',))
    """

    columns: tuple[int, ...]
    changelog: bool = False

    def __call__(self, value: Any) -> Any:
        row = value[1] if self.changelog else value
        return tuple([row[index] for index in self.columns]) if self.columns else 0


def grouping_of(key: Any, columns: tuple[int, ...]) -> SqlRow:
    """Return the values of the key's columns."""
    found: SqlRow = key if columns else ()
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
