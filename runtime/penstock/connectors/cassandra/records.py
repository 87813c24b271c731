"""The values of a record, in the order of the columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.common.types import Row, RowKind
from penstock.connectors.cassandra.scalars import Misfit

Values = Callable[[Any], "tuple[Any, ...] | list[Any]"]


def values_of(names: Sequence[str]) -> Values:
    """A function that takes tuples, lists and `Row`s by position; dicts, named tuples and objects by name.

    >>> values_of(["id", "name"])({"name": "Ann", "id": 7, "more": 0})
    (7, 'Ann')
    """
    wanted = tuple(names)

    def values(record: Any) -> tuple[Any, ...] | list[Any]:
        if isinstance(record, tuple | list) and not hasattr(record, "_fields"):
            return record
        if isinstance(record, Mapping):
            missing = [name for name in wanted if name not in record]
            if missing:
                raise Misfit(f"it has no {', '.join(map(repr, missing))}")
            return tuple(record[name] for name in wanted)
        if isinstance(record, Row):
            kind = record.get_row_kind()
            if kind not in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                raise Misfit(f"it is a row of a table that changes, of kind {kind.name}; the sink only writes rows")
            return list(record)
        missing = [name for name in wanted if not hasattr(record, name)]
        if missing:
            raise Misfit(f"it has no {', '.join(map(repr, missing))}")
        return tuple(getattr(record, name) for name in wanted)

    return values
