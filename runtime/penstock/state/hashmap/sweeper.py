"""Removal of expired entries that are not read, a few at a time."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from penstock.state.hashmap.collection_tables import ListTable, MapTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.state.hashmap.tables import CellTable
    from penstock.state.ttl.expiry import Lifetime


class TableSweeper:
    """A cursor that repeatedly passes through a table's entries.

    Args:
        table: its cells are (expiry time, value).
    """

    def __init__(self, table: CellTable, lifetime: Lifetime) -> None:
        self._table = table
        self._lifetime = lifetime
        self._entries: Iterator[tuple[Any, Any]] = iter(())

    def step(self) -> None:
        """Check the next few entries."""
        size = self._lifetime.sweep_size
        if size:
            self._sweep(size)

    def sweep_all(self) -> None:
        """Check every entry."""
        self._entries = self._all_entries()
        self._sweep(len(self._table))

    def _sweep(self, count: int) -> None:
        batch = list(islice(self._entries, count))
        if not batch:
            self._entries = self._all_entries()
            batch = list(islice(self._entries, count))
        now = self._lifetime.now()
        for namespace, key in batch:
            space = self._table.spaces.get(namespace)
            cell = None if space is None else space.get(key)
            if space is not None and cell is not None:
                self._sweep_cell(space, key, namespace, cell, now)

    def _all_entries(self) -> Iterator[tuple[Any, Any]]:
        return ((namespace, key) for namespace, keys in self._table.entries() for key in keys)

    def _sweep_cell(self, space: dict[Any, Any], key: Any, namespace: Any, cell: Any, now: int) -> None:
        table = self._table
        if isinstance(table, ListTable):
            alive = [element for element in cell if element[0] > now]
            if not alive:
                table.remove(key, namespace)
            elif len(alive) < len(cell):
                space[key] = alive
                table.marks(namespace)[key] = 0
        elif isinstance(table, MapTable):
            expired = [map_key for map_key, (expiry, _) in cell.items() if expiry <= now]
            if len(expired) == len(cell):
                table.remove(key, namespace)
            elif expired:
                table.remove_entries(key, namespace, expired)
        elif cell[0] <= now:
            table.remove(key, namespace)
