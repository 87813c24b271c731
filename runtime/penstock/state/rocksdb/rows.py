"""Rows of the RocksDB backend: the row key consists of key group, namespace and key.

    key group u16 | length of namespace u16 | namespace | length of key u32 | key | rest

All numbers are big-endian, so that a range of key groups, and a namespace in a key group, are ranges of rows. The
namespace None has length 0. `rest` is empty for a value, the number of the element for a list (u64), and the map key
for a map. Keys, namespaces and map keys have a canonical encoding (`keys`), so equal keys have the same row.

Timers: domain u8 | timestamp i64 (offset by 2^63) | address as above | without value.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from penstock.state.key_groups import KeyGroupCache
from penstock.state.snapshot_format.segment import NAMESPACES

if TYPE_CHECKING:
    from penstock.state.encoding.keys import KeyCodec
    from penstock.state.key_context import KeyContext

STATE = "state:"
"""Prefix of the names of states' column families."""
_SPACE = struct.Struct(">HH")
_LENGTH = struct.Struct(">I")
NUMBER = struct.Struct(">Q")
_GROUP = struct.Struct(">H")
_TIMER = struct.Struct(">BQ")
_TIME_OFFSET = 1 << 63


def family_name(state: str) -> str:
    """Return the name of a state's column family."""
    return f"{STATE}{state}"


def space_prefix(group: int, namespace: Any) -> bytes:
    """Return the prefix of the rows of a namespace in a key group."""
    return encoded_space_prefix(group, b"" if namespace is None else NAMESPACES.encode(namespace))


def encoded_space_prefix(group: int, encoded: bytes) -> bytes:
    """Return `space_prefix` of an encoded namespace from a row.

    In a damaged row, the bytes may differ from those that `NAMESPACES` would write.
    """
    return _SPACE.pack(group, len(encoded)) + encoded


def group_prefix(group: int) -> bytes:
    """Return the prefix of the rows of a key group.

    The prefix of the group after the last group is an upper bound of all rows.
    """
    return _GROUP.pack(group) if group < 1 << 16 else b"\xff" * 3


def after(prefix: bytes) -> bytes:
    """Return the first row key that is greater than all row keys with the prefix.

    >>> after(b"a"), after(b"a\\xff")
    (b'b', b'b')
    """
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else b"\xff" * (len(prefix) + 1)


def split_row(row: bytes) -> tuple[int, bytes, bytes, bytes]:
    """Return key group, encoded namespace, encoded key and rest.

    >>> split_row(space_prefix(5, None) + sized(b"k") + b"rest")
    (5, b'', b'k', b'rest')

    Raises:
        ValueError, struct.error: the row is shorter than its lengths say.
    """
    group, length = _SPACE.unpack_from(row)
    start = _SPACE.size + length
    key_start = start + _LENGTH.size
    key_end = key_start + int(_LENGTH.unpack_from(row, start)[0])
    if key_end > len(row):
        raise ValueError(f"the row has {len(row)} bytes, and its key ends at {key_end}")
    return group, row[_SPACE.size : start], row[key_start:key_end], row[key_end:]


def address_size(row: bytes) -> int:
    """Return the length of the row key up to the end of the state's key.

    The function raises the errors of `split_row`.
    """
    return len(row) - len(split_row(row)[3])


def sized(key: bytes) -> bytes:
    return _LENGTH.pack(len(key)) + key


def decode_namespace(encoded: bytes) -> Any:
    return NAMESPACES.decode(encoded) if encoded else None


def timer_prefix(domain: int, timestamp: int) -> bytes:
    """Return a prefix that sorts as the timestamps do. The timestamp 2^63, one above the largest 64-bit integer, is the
    end of the domain.

    >>> timer_prefix(1, 2**63 - 1) < timer_prefix(1, 2**63) == timer_prefix(2, -(2**63))
    True
    """
    if timestamp == _TIME_OFFSET:
        return _TIMER.pack(domain + 1, 0)
    return _TIMER.pack(domain, timestamp + _TIME_OFFSET)


def split_timer(row: bytes) -> tuple[int, int, bytes]:
    """Return domain, timestamp and address."""
    domain, timestamp = _TIMER.unpack_from(row)
    return domain, timestamp - _TIME_OFFSET, row[_TIMER.size :]


class Addresses:
    """Row keys of the current key and namespace.

    The last row key is cached, because several states are used for one record.
    """

    __slots__ = ("_at", "_groups", "_key", "_keys", "_namespace", "_prefix", "_spaces")

    def __init__(self, at: KeyContext, keys: KeyCodec, max_parallelism: int) -> None:
        self._at = at
        self._keys = keys
        self._groups = KeyGroupCache(max_parallelism)
        self._spaces: dict[tuple[int, Any], bytes] = {}
        self._key: Any = self
        self._namespace: Any = self
        self._prefix = b""

    def current(self) -> bytes:
        at = self._at
        if at.key is not self._key or at.namespace is not self._namespace:
            self._prefix = self.of(at.key, at.namespace)
            self._key, self._namespace = at.key, at.namespace
        return self._prefix

    def of(self, key: Any, namespace: Any) -> bytes:
        group = self._groups[key]
        space = self._spaces.get((group, namespace))
        if space is None:
            if len(self._spaces) > 10_000:
                self._spaces.clear()
            space = self._spaces[group, namespace] = space_prefix(group, namespace)
        return space + sized(self._keys.encode(key))
