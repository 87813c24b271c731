"""The rows that one side of a join keeps for a key, each with the number of its partners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.datastream.functions import RuntimeContext
from penstock.sql.operators.rows import SqlRow, check_key, identity_of
from penstock.sql.plan.nodes import Column
from penstock.state.descriptors import MapState, MapStateDescriptor

Entry = list[Any]
"""`[row, number of partners, count of equal rows]`."""


class Side:
    """A map from the identity of a row to its entry. A row of a table without a unique key is identified by all its columns.

    Args:
        unique: columns that identify a row within the key of the join. None means that equal rows are counted.
        counts: whether `partners` of the entries is needed.
    """

    def __init__(
        self, name: str, columns: tuple[Column, ...], unique: tuple[int, ...] | None, ttl_ms: int, *, counts: bool
    ) -> None:
        check_key(columns if unique is None else [columns[index] for index in unique])
        self._name = name
        self._ttl_ms = ttl_ms
        self._is_unique = unique is not None
        self._identity: Callable[[SqlRow], Any] = identity_of(columns, unique)
        self.counts = counts

    def open(self, context: RuntimeContext) -> None:
        descriptor = MapStateDescriptor(self._name, ttl=self._ttl_ms or None)
        self._state: MapState[Any, Entry] = context.get_map_state(descriptor)

    def entries(self) -> list[Entry]:
        return list(self._state.values())

    def add(self, row: SqlRow, partners: int = 0) -> SqlRow | None:
        """Add a row. Return the row with the same unique key that it replaces, or None."""
        identity = self._identity(row)
        former = self._state.get(identity)
        if former is None:
            self._state.put(identity, [row, partners, 1])
            return None
        self._state.put(identity, [row, partners, 1 if self._is_unique else former[2] + 1])
        return former[0] if self._is_unique else None

    def remove(self, row: SqlRow) -> None:
        identity = self._identity(row)
        former = self._state.get(identity)
        if former is None:
            return
        if former[2] > 1:
            self._state.put(identity, [former[0], former[1], former[2] - 1])
        else:
            self._state.remove(identity)

    def set_partners(self, entry: Entry, partners: int) -> None:
        """Store the number of partners of an entry. Its TTL starts again, as in Flink."""
        self._state.put(self._identity(entry[0]), [entry[0], partners, entry[2]])


def unique_columns(keys: tuple[int, ...], upsert_keys: tuple[tuple[int, ...], ...]) -> tuple[int, ...] | None:
    """Return the columns that identify a row among the rows of a key of the join, or None if no columns do.

    >>> unique_columns((0,), ((0,),)), unique_columns((0,), ((1, 2), (3,))), unique_columns((0,), ())
    ((), (3,), None)
    """
    if not upsert_keys:
        return None
    if any(set(found) <= set(keys) for found in upsert_keys):
        return ()
    return min(upsert_keys, key=len)
