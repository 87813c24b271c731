"""`state.peek` of a column family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocksdict import ReadOptions

from penstock.common.errors import StorageError
from penstock.state.encoding.codec import EXPIRY
from penstock.state.peek import NotPeekable, Peeked, bounded, lives, of_windows, typed_key
from penstock.state.rocksdb.database import scan
from penstock.state.rocksdb.rows import after, group_prefix, split_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocksdict import Rdict

    from penstock.state.encoding.keys import KeyCodec
    from penstock.state.registry import Registration
    from penstock.state.rocksdb.rows import Addresses

MOST_REMOVED = 20_000
"""Rows that RocksDB holds as removed or written over, in front of one that it looks for: some ms."""


def peek_family(
    family: Rdict,
    registration: Registration,
    keys: KeyCodec,
    key_schema: dict[str, Any],
    addresses: Addresses,
    key: Any,
) -> Peeked:
    """What a builtin key has in it.

    Raises:
        NotPeekable.
    """
    typed = typed_key(keys, key)
    items: list[bytes] = []
    map_keys: list[bytes] = []
    if typed is not None:
        prefix = addresses.of(typed.key, None)
        lifetime = registration.lifetime
        items, map_keys = bounded(
            _scan(family, prefix, after(prefix)),
            bytes,
            None if registration.map_keys is None else lambda row: split_row(row)[3],
            None if lifetime is None else lambda data: lives(EXPIRY.unpack_from(data)[0], lifetime),
        )
    if not items:
        return Peeked(registration.info, key_schema, [], sample=_sample(family))
    return Peeked(registration.info, key_schema, items, map_keys)


def _sample(family: Rdict) -> bytes | None:
    """The first key; None also if too much that was removed lies in front of it.

    Raises:
        NotPeekable: it is in a window.
    """
    try:
        first = next(_scan(family, b"", group_prefix(1 << 16)), None)
    except TooMuchRemoved:
        return None
    if first is None:
        return None
    _, namespace, key, _ = split_row(first[0])
    if namespace:
        raise of_windows()
    return key


class TooMuchRemoved(NotPeekable):
    """RocksDB would have to go past more than a task has time for."""


def _scan(family: Rdict, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
    """As `database.scan`, but only past so much at once.

    Raises:
        TooMuchRemoved.
    """
    options = ReadOptions()
    options.set_max_skippable_internal_keys(MOST_REMOVED)
    try:
        yield from scan(family, start, stop, options)
    except StorageError as error:
        if "Too many internal keys skipped" not in error.message:
            raise
        raise TooMuchRemoved("so much of the state was removed lately that a task cannot look past it") from None
