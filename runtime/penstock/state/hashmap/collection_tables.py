"""Tables of lists and of maps. A change may affect only a part of a cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from penstock.state.hashmap.tables import ABSENT, CellTable
from penstock.state.snapshot_format.rows import APPEND, PUT, REMOVE, Rows

if TYPE_CHECKING:
    from penstock.state.hashmap.table import Marks


class ListTable(CellTable):
    """Table of lists. A mark is the position of the first new element; 0 means that the whole list is new.

    The first mark since the last snapshot remains, so `mark_root` only sets missing marks.
    """

    layout = "list"

    def _root_mark(self) -> Callable[[Any, Any], Any]:
        return self._root_marks.setdefault

    def mark_removed(self, key: Any, namespace: Any) -> None:
        self.marks(namespace)[key] = 0

    def _merge_marks(self, into: Marks, marks: Marks, namespace: Any) -> None:
        for key, position in marks.items():
            into[key] = min(position, into.get(key, position))

    def _freeze_marks(self, marks: Marks, namespace: Any, *, gaps: bool) -> tuple[list[Any], list[Rows]]:
        space = self.spaces.get(namespace, {})
        gone = [key for key in marks if key not in space]
        whole = [key for key, position in marks.items() if not position and key in space]
        grown = [key for key, position in marks.items() if position and key in space]
        rows = []
        if whole:
            rows.append(self._present(whole, space, namespace))
        if grown:
            tails = [space[key][marks[key] :] for key in grown]
            rows.append(
                Rows(
                    APPEND,
                    grown,
                    None if namespace is None else [namespace] * len(grown),
                    positions=[marks[key] for key in grown],
                    counts=list(map(len, tails)),
                    values=list(chain.from_iterable(tails)),
                )
            )
        return gone, rows

    def _rows_of_cells(self, keys: list[Any], cells: list[Any], namespaces: list[Any] | None) -> Rows:
        return Rows(PUT, keys, namespaces, counts=list(map(len, cells)), values=list(chain.from_iterable(cells)))

    def _apply(self, rows: Rows) -> None:
        values, offset = rows.values or [], 0
        positions = repeat(0) if rows.op == PUT else rows.positions or []
        namespaces = rows.namespaces or repeat(None)
        for key, namespace, position, count in zip(rows.keys, namespaces, positions, rows.counts or [], strict=False):
            cell = self.space(namespace).setdefault(key, [])
            cell[position:] = values[offset : offset + count]
            offset += count


class MapTable(CellTable):
    """Table of maps. A mark is the set of changed map keys. None means that the map was cleared, and all its entries are new."""

    layout = "map"

    def mark_entry(self, key: Any, map_key: Any) -> None:
        """Record that one entry of the key's map in the namespace None has changed."""
        marks = self._root_marks
        changed = marks.get(key, ABSENT)
        if changed is ABSENT:
            marks[key] = {map_key}
        elif changed is not None:
            changed.add(map_key)

    def mark_removed(self, key: Any, namespace: Any) -> None:
        self.marks(namespace)[key] = None

    def _merge_marks(self, into: Marks, marks: Marks, namespace: Any) -> None:
        for key, changed in marks.items():
            if changed is None or (key in into and into[key] is None):
                into[key] = None
            else:
                into[key] = changed | into.get(key, set())

    def _freeze_marks(self, marks: Marks, namespace: Any, *, gaps: bool) -> tuple[list[Any], list[Rows]]:
        space = self.spaces.get(namespace, {})
        gone = [key for key, changed in marks.items() if changed is None or key not in space]
        put: list[tuple[Any, dict[Any, Any]]] = []
        removed: list[tuple[Any, list[Any]]] = []
        for key, changed in marks.items():
            cell = space.get(key)
            if cell is None:
                continue
            if changed is None:
                put.append((key, cell))
                continue
            new = {map_key: cell[map_key] for map_key in changed if map_key in cell}
            if new:
                put.append((key, new))
            if len(new) < len(changed):
                removed.append((key, [map_key for map_key in changed if map_key not in cell]))
        rows = []
        if put:
            keys = [key for key, _ in put]
            namespaces = None if namespace is None else [namespace] * len(keys)
            rows.append(self._rows_of_cells(keys, [cell for _, cell in put], namespaces))
        if removed:
            rows.append(
                Rows(
                    REMOVE,
                    [key for key, _ in removed],
                    None if namespace is None else [namespace] * len(removed),
                    counts=[len(map_keys) for _, map_keys in removed],
                    map_keys=[map_key for _, map_keys in removed for map_key in map_keys],
                )
            )
        return gone, rows

    def _rows_of_cells(self, keys: list[Any], cells: list[Any], namespaces: list[Any] | None) -> Rows:
        return Rows(
            PUT,
            keys,
            namespaces,
            counts=list(map(len, cells)),
            map_keys=list(chain.from_iterable(cells)),
            values=list(chain.from_iterable(cell.values() for cell in cells)),
        )

    def remove_entries(self, key: Any, namespace: Any, map_keys: Iterable[Any]) -> None:
        """Remove some, but not all, entries of an existing map."""
        cell = self.spaces[namespace][key]
        marks = self.marks(namespace)
        changed = marks.setdefault(key, set())
        for map_key in map_keys:
            if cell.pop(map_key, ABSENT) is not ABSENT and changed is not None:
                changed.add(map_key)

    def _apply(self, rows: Rows) -> None:
        map_keys, offset = rows.map_keys or [], 0
        values = rows.values or []
        namespaces = rows.namespaces or repeat(None)
        for key, namespace, count in zip(rows.keys, namespaces, rows.counts or [], strict=False):
            cut = slice(offset, offset + count)
            offset += count
            if rows.op == PUT:
                self.space(namespace).setdefault(key, {}).update(zip(map_keys[cut], values[cut], strict=True))
            else:
                self._remove_entries(key, namespace, map_keys[cut])

    def _remove_entries(self, key: Any, namespace: Any, map_keys: list[Any]) -> None:
        space = self.spaces.get(namespace)
        cell = None if space is None else space.get(key)
        if space is None or cell is None:
            return
        for map_key in map_keys:
            cell.pop(map_key, None)
        if not cell:
            del space[key]
            if not space and namespace is not None:
                del self.spaces[namespace]
