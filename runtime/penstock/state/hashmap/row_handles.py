"""Handles of states whose declared type contains a `Row`. They keep the value that a restore would return.

A function may store a tuple, a dict or a Row whose fields have another order. RocksDB encodes the value immediately and
always returns a Row with the declared fields. Without these handles, the hashmap backend would return the original
object until the next restore. A function that reads fields by position would then get other values after a failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.state.hashmap.handles import HashMapListState, HashMapMapState, HashMapValueState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.state.descriptors import Entries, StateDescriptor


def row_conversion(descriptor: StateDescriptor, *, expires: bool) -> Callable[[Any], Any] | None:
    """Return the function that converts a value to its declared form, or None if values are kept unchanged.

    Args:
        expires: whether values are pairs of an expiry time and a value.
    """
    type_info = descriptor.type_info
    if getattr(type_info, "is_storable", True):
        return None
    convert: Callable[[Any], Any] = type_info.convert
    return (lambda cell: (cell[0], convert(cell[1]))) if expires else convert


class _Rows:
    """Common part of the handles. Like the other handles of this backend, they also encode the first key and value."""

    __slots__ = ()

    def _declared(self: Any, value: Any) -> Any:
        try:
            found = self._convert(value)
        except (TypeError, ValueError, AttributeError):
            self._table.codec.encode(value)  # raises the error that names the state
            raise
        if not self._is_checked:
            self._table.check_key(self._at.key)
            self._table.codec.encode(found)
            self._is_checked = True
        return found


class RowValueState(_Rows, HashMapValueState):
    __slots__ = ("_convert", "_is_checked")

    def __init__(self, convert: Callable[[Any], Any], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._convert, self._is_checked = convert, False

    def update(self, value: Any) -> None:
        super().update(value if value is None else self._declared(value))


class RowListState(_Rows, HashMapListState):
    __slots__ = ("_convert", "_is_checked")

    def __init__(self, convert: Callable[[Any], Any], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._convert, self._is_checked = convert, False

    def add(self, value: Any) -> None:
        super().add_all((self._declared(value),))

    def add_all(self, values: Iterable[Any]) -> None:
        super().add_all(map(self._declared, values))

    def update(self, values: Iterable[Any]) -> None:
        super().update(map(self._declared, values))


class RowMapState(_Rows, HashMapMapState):
    __slots__ = ("_convert", "_is_checked")

    def __init__(self, convert: Callable[[Any], Any], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._convert, self._is_checked = convert, False

    def put(self, key: Any, value: Any) -> None:
        self.put_all({key: value})

    def put_all(self, dict_value: Entries) -> None:
        entries = dict(dict_value)
        if entries and not self._is_checked and self._table.map_keys is not None:
            self._table.map_keys.encode(next(iter(entries)))
        super().put_all({key: self._declared(value) for key, value in entries.items()})
