"""Handles of the RocksDB backend. Every access encodes or decodes one value, element or entry (S42)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.state.descriptors import ListState, MapState, ValueState
from penstock.state.hashmap.handles import fresh
from penstock.state.rocksdb.database import has_prefix, scan_prefix
from penstock.state.rocksdb.rows import NUMBER

if TYPE_CHECKING:
    from rocksdict import Rdict

    from penstock.state.descriptors import Entries
    from penstock.state.encoding.codec import Codec
    from penstock.state.encoding.keys import KeyCodec
    from penstock.state.rocksdb.backend import RocksDBStateBackend
    from penstock.state.rocksdb.rows import Addresses
    from penstock.state.snapshot_format.column_rows import AccumulatorShape


class RocksDBValueState(ValueState[Any]):
    __slots__ = ("_current", "_decode", "_default", "_encode", "_family")

    def __init__(self, family: Rdict, addresses: Addresses, codec: Codec, default: Any = None) -> None:
        self._family = family
        self._current = addresses.current
        self._encode = codec.encode
        self._decode = codec.decode
        self._default = default

    def value(self) -> Any:
        data = self._family.get(self._current())
        return fresh(self._default) if data is None else self._decode(data)

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self._family[self._current()] = self._encode(value)

    def clear(self) -> None:
        del self._family[self._current()]


class RocksDBListState(ListState[Any]):
    """Each element is a row of its own, numbered in order of arrival: an append reads nothing."""

    __slots__ = ("_addresses", "_backend", "_codec", "_family")

    def __init__(self, family: Rdict, addresses: Addresses, codec: Codec, backend: RocksDBStateBackend) -> None:
        self._family = family
        self._addresses = addresses
        self._codec = codec
        self._backend = backend

    def get(self) -> list[Any]:
        decode = self._codec.decode
        return [decode(data) for _, data in scan_prefix(self._family, self._addresses.current())]

    def add(self, value: Any) -> None:
        row = self._addresses.current() + NUMBER.pack(self._backend.next_number())
        self._family[row] = self._codec.encode(value)

    def add_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.add(value)

    def update(self, values: Iterable[Any]) -> None:
        items = list(values)
        self.clear()
        self.add_all(items)

    def clear(self) -> None:
        for row, _ in scan_prefix(self._family, self._addresses.current()):
            del self._family[row]


class RocksDBMapState(MapState[Any, Any]):
    """Each entry is a row of its own. Entries come in the order of their encoded keys."""

    __slots__ = ("_addresses", "_codec", "_default", "_family", "_keys")

    def __init__(self, family: Rdict, addresses: Addresses, codec: Codec, keys: KeyCodec, default: Any = None) -> None:
        self._family = family
        self._addresses = addresses
        self._codec = codec
        self._keys = keys
        self._default = default

    def _row(self, key: Any) -> bytes:
        return self._addresses.current() + self._keys.encode(key)

    def get(self, key: Any, default: Any = None) -> Any:
        data = self._family.get(self._row(key))
        if data is None:
            return fresh(self._default) if default is None else default
        return self._codec.decode(data)

    def put(self, key: Any, value: Any) -> None:
        self._family[self._row(key)] = self._codec.encode(value)

    def put_all(self, dict_value: Entries) -> None:
        for key, value in dict(dict_value).items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        del self._family[self._row(key)]

    def contains(self, key: Any) -> bool:
        return self._family.get(self._row(key)) is not None

    def _rows(self) -> Iterator[tuple[bytes, bytes]]:
        prefix = self._addresses.current()
        size = len(prefix)
        return ((row[size:], data) for row, data in scan_prefix(self._family, prefix))

    def items(self) -> Iterable[tuple[Any, Any]]:
        key, value = self._keys.decode, self._codec.decode
        return ((key(map_key), value(data)) for map_key, data in self._rows())

    def keys(self) -> Iterable[Any]:
        return (self._keys.decode(map_key) for map_key, _ in self._rows())

    def values(self) -> Iterable[Any]:
        return (self._codec.decode(data) for _, data in self._rows())

    def is_empty(self) -> bool:
        return not has_prefix(self._family, self._addresses.current())

    def clear(self) -> None:
        for row, _ in scan_prefix(self._family, self._addresses.current()):
            del self._family[row]


class RocksDBRawTable:
    """`backend.RawTable`; there is no dictionary to give, so use `get` and `put`."""

    __slots__ = ("_addresses", "_backend", "_codec", "_family", "_name")

    def __init__(
        self, name: str, family: Rdict, addresses: Addresses, codec: Codec, backend: RocksDBStateBackend
    ) -> None:
        self._name = name
        self._family = family
        self._addresses = addresses
        self._codec = codec
        self._backend = backend

    def get(self, key: Any, namespace: Any = None) -> Any:
        data = self._family.get(self._addresses.of(key, namespace))
        return None if data is None else self._codec.decode(data)

    def put(self, key: Any, value: Any, namespace: Any = None) -> None:
        self._family[self._addresses.of(key, namespace)] = self._codec.encode(value)

    def remove(self, key: Any, namespace: Any = None) -> None:
        del self._family[self._addresses.of(key, namespace)]

    def mapping(self, namespace: Any = None) -> None:
        """Values are in RocksDB; there is no dictionary to lend."""

    def columns(self, shape: AccumulatorShape, count: int) -> None:
        """Nor are there columns."""

    def touch(self, keys: Iterable[Any], namespace: Any = None) -> None:
        """Nothing to note: `put` has written it."""

    def pop_namespace(self, namespace: Any) -> Iterator[tuple[Any, Any]]:
        rows = list(self._backend.rows_of_namespace(self._name, namespace))
        for row, _, _ in rows:
            del self._family[row]
        decode = self._codec.decode
        return ((key, decode(data)) for _, key, data in rows)
