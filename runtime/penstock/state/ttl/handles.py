"""Handles of state with a time-to-live. They wrap handles of any backend, which hold cells (expiry time, value).

A read removes expired cells. Most reads and writes also call `sweep`, which removes a few expired cells that nothing
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.state.descriptors import ListState, MapState, ValueState
from penstock.state.hashmap.handles import fresh

if TYPE_CHECKING:
    from penstock.state.descriptors import Entries
    from penstock.state.ttl.expiry import Cell, Lifetime

Sweep = Callable[[], None]


class TtlValueState(ValueState[Any]):
    __slots__ = ("_cells", "_default", "_lifetime", "_sweep")

    def __init__(self, cells: ValueState[Cell], lifetime: Lifetime, sweep: Sweep, default: Any = None) -> None:
        self._cells = cells
        self._lifetime = lifetime
        self._sweep = sweep
        self._default = default

    def value(self) -> Any:
        self._sweep()
        cell = self._cells.value()
        if cell is None:
            return fresh(self._default)
        lifetime = self._lifetime
        expiry, value = cell
        if expiry <= lifetime.now():
            self._cells.clear()
            return value if lifetime.returns_expired else fresh(self._default)
        if lifetime.renews_on_read:
            self._cells.update((lifetime.deadline(), value))
        return value

    def update(self, value: Any) -> None:
        self._sweep()
        self._cells.update(None if value is None else (self._lifetime.deadline(), value))

    def clear(self) -> None:
        self._cells.clear()


class TtlListState(ListState[Any]):
    """List state whose elements expire separately, as in Flink."""

    __slots__ = ("_cells", "_lifetime", "_sweep")

    def __init__(self, cells: ListState[Cell], lifetime: Lifetime, sweep: Sweep) -> None:
        self._cells = cells
        self._lifetime = lifetime
        self._sweep = sweep

    def get(self) -> list[Any]:
        self._sweep()
        lifetime = self._lifetime
        cells = self._cells.get()
        now = lifetime.now()
        alive = [cell for cell in cells if cell[0] > now]
        if alive and lifetime.renews_on_read:
            deadline = lifetime.deadline()
            self._cells.update([(deadline, value) for _, value in alive])
        elif len(alive) < len(cells):
            self._cells.update(alive)
        return [value for _, value in (cells if lifetime.returns_expired else alive)]

    def add(self, value: Any) -> None:
        self._sweep()
        self._cells.add((self._lifetime.deadline(), value))

    def add_all(self, values: Iterable[Any]) -> None:
        self._sweep()
        deadline = self._lifetime.deadline()
        self._cells.add_all([(deadline, value) for value in values])

    def update(self, values: Iterable[Any]) -> None:
        deadline = self._lifetime.deadline()
        self._cells.update([(deadline, value) for value in values])

    def clear(self) -> None:
        self._cells.clear()


class TtlMapState(MapState[Any, Any]):
    """Map state whose entries expire separately, as in Flink."""

    __slots__ = ("_cells", "_default", "_lifetime", "_sweep")

    def __init__(self, cells: MapState[Any, Cell], lifetime: Lifetime, sweep: Sweep, default: Any = None) -> None:
        self._cells = cells
        self._lifetime = lifetime
        self._sweep = sweep
        self._default = default

    def get(self, key: Any, default: Any = None) -> Any:
        self._sweep()
        cell = self._cells.get(key)
        if cell is None:
            return fresh(self._default) if default is None else default
        lifetime = self._lifetime
        expiry, value = cell
        if expiry <= lifetime.now():
            self._cells.remove(key)
            if lifetime.returns_expired:
                return value
            return fresh(self._default) if default is None else default
        if lifetime.renews_on_read:
            self._cells.put(key, (lifetime.deadline(), value))
        return value

    def put(self, key: Any, value: Any) -> None:
        self._sweep()
        self._cells.put(key, (self._lifetime.deadline(), value))

    def put_all(self, dict_value: Entries) -> None:
        self._sweep()
        deadline = self._lifetime.deadline()
        self._cells.put_all({key: (deadline, value) for key, value in dict(dict_value).items()})

    def remove(self, key: Any) -> None:
        self._cells.remove(key)

    def contains(self, key: Any) -> bool:
        cell = self._cells.get(key)
        return cell is not None and (self._lifetime.returns_expired or cell[0] > self._lifetime.now())

    def items(self) -> Iterable[tuple[Any, Any]]:
        return ((key, value) for key, (_, value) in self._visible())

    def keys(self) -> Iterable[Any]:
        return (key for key, _ in self._visible())

    def values(self) -> Iterable[Any]:
        return (value for _, (_, value) in self._visible())

    def _visible(self) -> Iterator[tuple[Any, Cell]]:
        lifetime = self._lifetime
        now = lifetime.now()
        cells = list(self._cells.items())
        for key, (expiry, value) in cells:
            if expiry <= now:
                self._cells.remove(key)
            elif lifetime.renews_on_read:
                self._cells.put(key, (lifetime.deadline(), value))
        return iter(cells if lifetime.returns_expired else [cell for cell in cells if cell[1][0] > now])

    def is_empty(self) -> bool:
        return not any(True for _ in self._visible())

    def clear(self) -> None:
        self._cells.clear()
