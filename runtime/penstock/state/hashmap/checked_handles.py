"""Handles that check their first key and value. A value that a snapshot cannot write is refused in the function that stores it.

The hashmap backend accepts any object. Without the check, a value of the wrong type would be found only at the first checkpoint. The error
would be far from the line that stored the value, and many such values may exist by then. A new handle therefore encodes its first key and
value. The handle then changes its class to the class without checks, so later calls have no additional cost. A checkpoint finds wrong
values that come later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.state.hashmap.handles import HashMapListState, HashMapMapState, HashMapRawTable, HashMapValueState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.state.descriptors import Entries


class CheckedValueState(HashMapValueState):
    __slots__ = ()

    def update(self, value: Any) -> None:
        if value is not None and type(self) is CheckedValueState:  # a bound method outlives the change of class
            self._table.check_key(self._at.key)
            self._table.codec.encode(value)
            self.__class__ = HashMapValueState  # type: ignore[assignment]
        HashMapValueState.update(self, value)


class CheckedListState(HashMapListState):
    __slots__ = ()

    def _check(self, value: Any) -> None:
        # Called on the class, because a bound method outlives the change of class.
        if type(self) is not CheckedListState:
            return
        self._table.check_key(self._at.key)
        self._table.codec.encode(value)
        self.__class__ = HashMapListState  # type: ignore[assignment]

    def add(self, value: Any) -> None:
        CheckedListState._check(self, value)
        HashMapListState.add(self, value)

    def add_all(self, values: Iterable[Any]) -> None:
        items = list(values)
        if items:
            CheckedListState._check(self, items[0])
        HashMapListState.add_all(self, items)

    def update(self, values: Iterable[Any]) -> None:
        items = list(values)
        if items:
            CheckedListState._check(self, items[0])
        HashMapListState.update(self, items)


class CheckedMapState(HashMapMapState):
    __slots__ = ()

    def _check(self, key: Any, value: Any) -> None:
        if type(self) is not CheckedMapState:
            return
        self._table.check_key(self._at.key)
        if self._table.map_keys is not None:
            self._table.map_keys.encode(key)
        self._table.codec.encode(value)
        self.__class__ = HashMapMapState  # type: ignore[assignment]

    def put(self, key: Any, value: Any) -> None:
        CheckedMapState._check(self, key, value)
        HashMapMapState.put(self, key, value)

    def put_all(self, dict_value: Entries) -> None:
        entries = dict(dict_value)
        for key, value in entries.items():
            CheckedMapState._check(self, key, value)
            break
        HashMapMapState.put_all(self, entries)


class CheckedRawTable(HashMapRawTable):
    """A raw table whose values belong to the engine. Only the first key is checked, when it is read or written."""

    __slots__ = ()

    def _check(self, key: Any) -> None:
        if type(self) is CheckedRawTable:
            self._table.check_key(key)
            self.__class__ = HashMapRawTable  # type: ignore[assignment]

    def get(self, key: Any, namespace: Any = None) -> Any:
        CheckedRawTable._check(self, key)
        return HashMapRawTable.get(self, key, namespace)

    def put(self, key: Any, value: Any, namespace: Any = None) -> None:
        CheckedRawTable._check(self, key)
        HashMapRawTable.put(self, key, value, namespace)

    def touch(self, keys: Iterable[Any], namespace: Any = None) -> None:
        if type(self) is CheckedRawTable:
            keys = list(keys)
            for key in keys[:1]:
                CheckedRawTable._check(self, key)
        HashMapRawTable.touch(self, keys, namespace)
