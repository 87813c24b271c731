"""Handles whose first value is checked: what a snapshot could not write is refused in the function that stores it.

The backend in memory takes any object, and would find out at the first checkpoint that it is not of the declared type: far
from the line that is wrong, and when many such values are there. So a new handle encodes the first value that it is given.
Then it becomes a plain one, class and all, and costs nothing any more; what is wrong only now and then, a checkpoint finds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.state.hashmap.handles import HashMapListState, HashMapMapState, HashMapValueState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class CheckedValueState(HashMapValueState):
    __slots__ = ()

    def update(self, value: Any) -> None:
        if value is not None and type(self) is CheckedValueState:  # a bound method outlives the change of class
            self._table.codec.encode(value)
            self.__class__ = HashMapValueState  # type: ignore[assignment]
        HashMapValueState.update(self, value)


class CheckedListState(HashMapListState):
    __slots__ = ()

    def _check(self, value: Any) -> None:
        if type(self) is not CheckedListState:
            return
        self._table.codec.encode(value)
        self.__class__ = HashMapListState  # type: ignore[assignment]

    def add(self, value: Any) -> None:
        self._check(value)
        HashMapListState.add(self, value)

    def add_all(self, values: Iterable[Any]) -> None:
        items = list(values)
        if items:
            self._check(items[0])
        HashMapListState.add_all(self, items)

    def update(self, values: Iterable[Any]) -> None:
        items = list(values)
        if items:
            self._check(items[0])
        HashMapListState.update(self, items)


class CheckedMapState(HashMapMapState):
    __slots__ = ()

    def _check(self, key: Any, value: Any) -> None:
        if type(self) is not CheckedMapState:
            return
        if self._table.map_keys is not None:
            self._table.map_keys.encode(key)
        self._table.codec.encode(value)
        self.__class__ = HashMapMapState  # type: ignore[assignment]

    def put(self, key: Any, value: Any) -> None:
        self._check(key, value)
        HashMapMapState.put(self, key, value)

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self._check(key, value)
            break
        HashMapMapState.put_all(self, dict_value)
