"""Handles of the hashmap backend. A call takes a few dictionary operations.

Each handle reads key and namespace from the key context. The namespace None is by far the most frequent namespace. It has a separate path
that uses only the table's root dictionary.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from penstock.state.descriptors import ListState, MapState, ValueState
from penstock.state.encoding.tagged import SCALARS
from penstock.state.hashmap.accumulator_table import AccumulatorTable
from penstock.state.hashmap.collection_tables import ListTable, MapTable
from penstock.state.hashmap.tables import ABSENT, ValueTable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from penstock.state.descriptors import Entries
    from penstock.state.hashmap.accumulator_columns import AccumulatorColumns
    from penstock.state.key_context import KeyContext
    from penstock.state.snapshot_format.column_rows import AccumulatorShape


def fresh(default: Any) -> Any:
    """Return a copy of the default for one reader, who may change it."""
    return default if type(default) in SCALARS else deepcopy(default)


class HashMapValueState(ValueState[Any]):
    __slots__ = ("_at", "_default", "_get", "_root", "_table")

    def __init__(self, table: ValueTable, at: KeyContext, default: Any = None) -> None:
        self._table = table
        self._at = at
        self._default = default
        self._root = table.root
        self._get = table.root.get

    def value(self) -> Any:
        at = self._at
        if at.namespace is None:
            value = self._get(at.key)
        else:
            space = self._table.spaces.get(at.namespace)
            value = None if space is None else space.get(at.key)
        return fresh(self._default) if value is None and self._default is not None else value

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
            return
        at = self._at
        key = at.key
        if at.namespace is None:
            self._root[key] = value
            self._table.mark_root(key, value)
        else:
            self._table.space(at.namespace)[key] = value
            self._table.marks(at.namespace)[key] = value

    def clear(self) -> None:
        self._table.remove(self._at.key, self._at.namespace)


class HashMapListState(ListState[Any]):
    __slots__ = ("_at", "_root", "_table")

    def __init__(self, table: ListTable, at: KeyContext) -> None:
        self._table = table
        self._at = at
        self._root = table.root

    def _cell(self) -> list[Any] | None:
        at = self._at
        space = self._root if at.namespace is None else self._table.spaces.get(at.namespace)
        return None if space is None else space.get(at.key)

    def get(self) -> list[Any]:
        cell = self._cell()
        return [] if cell is None else cell[:]

    def add(self, value: Any) -> None:
        at = self._at
        key = at.key
        if at.namespace is None:
            cell = self._root.get(key)
            if cell is None:
                self._root[key] = [value]
                self._table.mark_root(key, 0)
            else:
                self._table.mark_root(key, len(cell))
                cell.append(value)
        else:
            self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        items = list(values)
        if not items:
            return
        at = self._at
        space = self._table.space(at.namespace)
        cell = space.get(at.key)
        marks = self._table.marks(at.namespace)
        if cell is None:
            space[at.key] = items
            marks.setdefault(at.key, 0)
        else:
            marks.setdefault(at.key, len(cell))
            cell.extend(items)

    def update(self, values: Iterable[Any]) -> None:
        items = list(values)
        at = self._at
        if not items:
            self.clear()
            return
        self._table.space(at.namespace)[at.key] = items
        self._table.marks(at.namespace)[at.key] = 0

    def clear(self) -> None:
        self._table.remove(self._at.key, self._at.namespace)


class HashMapMapState(MapState[Any, Any]):
    __slots__ = ("_at", "_default", "_root", "_table")

    def __init__(self, table: MapTable, at: KeyContext, default: Any = None) -> None:
        self._table = table
        self._at = at
        self._default = default
        self._root = table.root

    def _cell(self) -> dict[Any, Any] | None:
        at = self._at
        space = self._root if at.namespace is None else self._table.spaces.get(at.namespace)
        return None if space is None else space.get(at.key)

    def get(self, key: Any, default: Any = None) -> Any:
        at = self._at
        cell = self._root.get(at.key) if at.namespace is None else self._cell()
        if cell is not None:
            value = cell.get(key, ABSENT)
            if value is not ABSENT:
                return value
        return default if default is not None or self._default is None else fresh(self._default)

    def put(self, key: Any, value: Any) -> None:
        at = self._at
        if at.namespace is not None:
            self.put_all({key: value})
            return
        owner = at.key
        cell = self._root.get(owner)
        if cell is None:
            self._root[owner] = {key: value}
        else:
            cell[key] = value
        table = self._table
        if table.tracking:
            table.mark_entry(owner, key)

    def put_all(self, dict_value: Entries) -> None:
        entries = dict(dict_value)
        if not entries:
            return
        at = self._at
        table = self._table
        space = table.space(at.namespace)
        cell = space.get(at.key)
        if cell is None:
            space[at.key] = entries
        else:
            cell.update(entries)
        marks = table.marks(at.namespace)
        changed = marks.get(at.key, ABSENT)
        if changed is ABSENT:
            marks[at.key] = set(entries)
        elif changed is not None:
            changed.update(entries)

    def remove(self, key: Any) -> None:
        cell = self._cell()
        if cell is None or cell.pop(key, ABSENT) is ABSENT:
            return
        at = self._at
        if not cell:
            self.clear()
            return
        changed = self._table.marks(at.namespace).setdefault(at.key, set())
        if changed is not None:
            changed.add(key)

    def contains(self, key: Any) -> bool:
        cell = self._cell()
        return cell is not None and key in cell

    def items(self) -> Iterable[tuple[Any, Any]]:
        cell = self._cell() or {}
        keys = self._seen(cell)
        return cell.items() if keys is cell else zip(keys, cell.values(), strict=True)

    def keys(self) -> Iterable[Any]:
        cell = self._cell() or {}
        keys = self._seen(cell)
        return cell.keys() if keys is cell else keys

    def _seen(self, cell: dict[Any, Any]) -> Collection[Any]:
        map_keys = self._table.map_keys
        return cell if map_keys is None else map_keys.all_as_restored(cell)

    def values(self) -> Iterable[Any]:
        return (self._cell() or {}).values()

    def is_empty(self) -> bool:
        return not self._cell()

    def __len__(self) -> int:
        return len(self._cell() or ())

    def clear(self) -> None:
        self._table.remove(self._at.key, self._at.namespace)


class HashMapRawTable:
    """The `backend.RawTable` of this backend. A dictionary from `mapping` is live until its namespace is popped or a snapshot is taken.
    Fetch the dictionary once per batch.
    """

    __slots__ = ("_spaces", "_table")

    def __init__(self, table: ValueTable) -> None:
        self._table = table
        self._spaces = table.spaces

    def get(self, key: Any, namespace: Any = None) -> Any:
        spaces = self._table.spaces if self._table.are_columns else self._spaces
        space = spaces.get(namespace)
        return None if space is None else space.get(key)

    def put(self, key: Any, value: Any, namespace: Any = None) -> None:
        table = self._table
        spaces = table.spaces if table.are_columns else self._spaces
        space = spaces.get(namespace)
        if space is None:
            spaces[namespace] = {key: value}
        else:
            space[key] = value
        if table.tracking:
            table.marks(namespace)[key] = value

    def remove(self, key: Any, namespace: Any = None) -> None:
        table = self._table
        spaces = table.spaces if table.are_columns else self._spaces
        space = spaces.get(namespace)
        if space and space.pop(key, ABSENT) is not ABSENT:
            if table.tracking:
                table.mark_removed(key, namespace)
            if not space and namespace is not None:
                del spaces[namespace]

    def mapping(self, namespace: Any = None) -> dict[Any, Any]:
        return self._table.space(namespace)

    def columns(self, shape: AccumulatorShape, count: int) -> AccumulatorColumns | None:
        return self._table.columns(shape, count) if isinstance(self._table, AccumulatorTable) else None

    def touch(self, keys: Iterable[Any], namespace: Any = None) -> None:
        self._table.touch(keys, namespace)

    def pop_namespace(self, namespace: Any) -> Iterator[tuple[Any, Any]]:
        return iter(self._table.pop_namespace(namespace).items())
