"""Handles of the RocksDB backend. Every access encodes or decodes one value, element or entry.

A restore does not decode rows. The handles therefore find undecodable bytes when a function reads a row, and each
failed read calls `refuse_unreadable`. A `try` costs nothing if no error occurs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from penstock.state.decoding import refuse_undecodable
from penstock.state.descriptors import ListState, MapState, ValueState
from penstock.state.hashmap.handles import fresh
from penstock.state.local_disk import refuse_failed_write
from penstock.state.rocksdb.database import has_prefix, refuse_unreadable_files, scan_prefix
from penstock.state.rocksdb.rows import NUMBER

if TYPE_CHECKING:
    from rocksdict import Rdict

    from penstock.state.descriptors import Entries
    from penstock.state.encoding.codec import Codec
    from penstock.state.encoding.keys import KeyCodec
    from penstock.state.rocksdb.rows import Addresses
    from penstock.state.snapshot_format.column_rows import AccumulatorShape

_PACKAGE = f"{__name__.rpartition('.')[0]}."


def refuse_unreadable(codec: Codec, error: Exception) -> NoReturn:
    """Raise the coded error for a row of the state that cannot be read or decoded.

    Raises:
        LocalDiskError: RocksDB cannot read its files.
        CorruptStateFile: the codec did not write the content of the row.
    """
    if _is_database_error(error):
        refuse_unreadable_files(error)
    refuse_undecodable(f"an entry of state {codec.state!r}", error, operator=codec.operator)


def _is_database_error(error: Exception) -> bool:
    """Return whether this package raised the error.

    Codecs and user classes, which may raise any error, are in other packages.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or str(trace.tb_frame.f_globals.get("__name__")).startswith(_PACKAGE)


def refuse_unwritten(family: Rdict, error: Exception) -> NoReturn:
    """Raise the coded error for a row that cannot be written or deleted.

    Raises:
        LocalDiskError: RocksDB cannot write. After one failed write, RocksDB refuses all later writes.
    """
    refuse_failed_write(family.path(), error)


def _delete(family: Rdict, rows: Iterable[bytes]) -> None:
    try:
        for row in rows:
            del family[row]
    except Exception as error:
        refuse_unwritten(family, error)


class RocksDBValueState(ValueState[Any]):
    __slots__ = ("_codec", "_current", "_decode", "_default", "_encode", "_family")

    def __init__(self, family: Rdict, addresses: Addresses, codec: Codec, default: Any = None) -> None:
        self._family = family
        self._current = addresses.current
        self._codec = codec
        self._encode = codec.encode
        self._decode = codec.decode
        self._default = default

    def value(self) -> Any:
        row = self._current()
        try:
            data = self._family.get(row)
            if data is not None:
                return self._decode(data)
        except Exception as error:
            refuse_unreadable(self._codec, error)
        return fresh(self._default)

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            data = self._encode(value)
            try:
                self._family[self._current()] = data
            except Exception as error:
                refuse_unwritten(self._family, error)

    def clear(self) -> None:
        try:
            del self._family[self._current()]
        except Exception as error:
            refuse_unwritten(self._family, error)


class BackendRows(Protocol):
    """The part of the backend that its handles use."""

    def next_number(self) -> int:
        """Return the number of the next element of a list."""
        ...

    def namespace_rows(self, state_name: str, namespace: Any) -> Iterator[tuple[bytes, Any, bytes]]:
        """Return (row, key, encoded value) of every entry in the namespace."""
        ...


class RocksDBListState(ListState[Any]):
    """List state with one row for each element. Rows are numbered in order of arrival, so an append reads nothing."""

    __slots__ = ("_addresses", "_backend", "_codec", "_family")

    def __init__(self, family: Rdict, addresses: Addresses, codec: Codec, backend: BackendRows) -> None:
        self._family = family
        self._addresses = addresses
        self._codec = codec
        self._backend = backend

    def get(self) -> list[Any]:
        decode, prefix = self._codec.decode, self._addresses.current()
        try:
            return [decode(data) for _, data in scan_prefix(self._family, prefix)]
        except Exception as error:
            refuse_unreadable(self._codec, error)

    def add(self, value: Any) -> None:
        row = self._addresses.current() + NUMBER.pack(self._backend.next_number())
        data = self._codec.encode(value)
        try:
            self._family[row] = data
        except Exception as error:
            refuse_unwritten(self._family, error)

    def add_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.add(value)

    def update(self, values: Iterable[Any]) -> None:
        items = list(values)
        self.clear()
        self.add_all(items)

    def clear(self) -> None:
        _delete(self._family, (row for row, _ in scan_prefix(self._family, self._addresses.current())))


class RocksDBMapState(MapState[Any, Any]):
    """Map state with one row for each entry. Entries are in the order of their encoded keys."""

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
        row = self._row(key)
        try:
            data = self._family.get(row)
            if data is not None:
                return self._codec.decode(data)
        except Exception as error:
            refuse_unreadable(self._codec, error)
        return fresh(self._default) if default is None else default

    def put(self, key: Any, value: Any) -> None:
        row, data = self._row(key), self._codec.encode(value)
        try:
            self._family[row] = data
        except Exception as error:
            refuse_unwritten(self._family, error)

    def put_all(self, dict_value: Entries) -> None:
        for key, value in dict(dict_value).items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        row = self._row(key)
        try:
            del self._family[row]
        except Exception as error:
            refuse_unwritten(self._family, error)

    def contains(self, key: Any) -> bool:
        row = self._row(key)
        try:
            return self._family.get(row) is not None
        except Exception as error:
            refuse_unreadable(self._codec, error)

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Decode the entries one by one. They belong to the key that is current at the call, not to the key at the time of reading."""
        return self._items(self._addresses.current())

    def _items(self, prefix: bytes) -> Iterator[tuple[Any, Any]]:
        key, value, size = self._keys.decode, self._codec.decode, len(prefix)
        try:
            for row, data in scan_prefix(self._family, prefix):
                yield key(row[size:]), value(data)
        except Exception as error:
            refuse_unreadable(self._codec, error)

    def keys(self) -> Iterable[Any]:
        return self._map_keys(self._addresses.current())

    def _map_keys(self, prefix: bytes) -> Iterator[Any]:
        key, size = self._keys.decode, len(prefix)
        try:
            for row, _ in scan_prefix(self._family, prefix):
                yield key(row[size:])
        except Exception as error:
            refuse_unreadable(self._codec, error)

    def values(self) -> Iterable[Any]:
        return self._values(self._addresses.current())

    def _values(self, prefix: bytes) -> Iterator[Any]:
        value = self._codec.decode
        try:
            for _, data in scan_prefix(self._family, prefix):
                yield value(data)
        except Exception as error:
            refuse_unreadable(self._codec, error)

    def is_empty(self) -> bool:
        return not has_prefix(self._family, self._addresses.current())

    def clear(self) -> None:
        _delete(self._family, (row for row, _ in scan_prefix(self._family, self._addresses.current())))


class RocksDBRawTable:
    """The `backend.RawTable` of this backend. It has no dictionary, so use `get` and `put`."""

    __slots__ = ("_addresses", "_backend", "_codec", "_family", "_name")

    def __init__(self, name: str, family: Rdict, addresses: Addresses, codec: Codec, backend: BackendRows) -> None:
        self._name = name
        self._family = family
        self._addresses = addresses
        self._codec = codec
        self._backend = backend

    def get(self, key: Any, namespace: Any = None) -> Any:
        row = self._addresses.of(key, namespace)
        try:
            data = self._family.get(row)
            return None if data is None else self._codec.decode(data)
        except Exception as error:
            refuse_unreadable(self._codec, error)

    def put(self, key: Any, value: Any, namespace: Any = None) -> None:
        row, data = self._addresses.of(key, namespace), self._codec.encode(value)
        try:
            self._family[row] = data
        except Exception as error:
            refuse_unwritten(self._family, error)

    def remove(self, key: Any, namespace: Any = None) -> None:
        row = self._addresses.of(key, namespace)
        try:
            del self._family[row]
        except Exception as error:
            refuse_unwritten(self._family, error)

    def mapping(self, namespace: Any = None) -> None:
        """Return None, because the values are in RocksDB, not in a dictionary."""

    def columns(self, shape: AccumulatorShape, count: int) -> None:
        """Return None, because the backend has no columns."""

    def touch(self, keys: Iterable[Any], namespace: Any = None) -> None:
        """Do nothing, because `put` has written the value."""

    def pop_namespace(self, namespace: Any) -> Iterator[tuple[Any, Any]]:
        rows = list(self._backend.namespace_rows(self._name, namespace))
        _delete(self._family, (row for row, _, _ in rows))
        return self._decoded(rows)

    def _decoded(self, rows: list[tuple[bytes, Any, bytes]]) -> Iterator[tuple[Any, Any]]:
        decode = self._codec.decode
        try:
            for _, key, data in rows:
                yield key, decode(data)
        except Exception as error:
            refuse_unreadable(self._codec, error)
