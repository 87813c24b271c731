"""Implementation of `state.peek.stored` for a column family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocksdict import ReadOptions

from penstock.common.errors import StorageError
from penstock.state.encoding.codec import EXPIRY
from penstock.state.peek.stored import NotPeekable, Peeked, bounded, is_visible, typed_key, window_state_error
from penstock.state.rocksdb.database import scan
from penstock.state.rocksdb.rows import after, group_prefix, split_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocksdict import Rdict

    from penstock.state.encoding.keys import KeyCodec
    from penstock.state.registry import Registration
    from penstock.state.rocksdb.rows import Addresses

MAX_SKIPPED = 20_000
"""Maximum number of removed or overwritten rows that RocksDB may skip before it finds a row.

Skipping them takes some ms.
"""


def peek_family(
    family: Rdict,
    registration: Registration,
    keys: KeyCodec,
    key_schema: dict[str, Any],
    addresses: Addresses,
    key: Any,
) -> Peeked:
    """Return the content of the state for a key of a builtin type.

    Raises:
        NotPeekable: the content is too large, or it belongs to windows.
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
            None if lifetime is None else lambda data: is_visible(EXPIRY.unpack_from(data)[0], lifetime),
        )
    if not items:
        return Peeked(registration.info, key_schema, [], sample=_sample(family))
    return Peeked(registration.info, key_schema, items, map_keys)


def _sample(family: Rdict) -> bytes | None:
    """Return the first stored key; None if the family is empty or too many removed rows come first.

    Raises:
        NotPeekable: the key belongs to a window.
    """
    try:
        first = next(_scan(family, b"", group_prefix(1 << 16)), None)
    except TooManyTombstones:
        return None
    if first is None:
        return None
    _, namespace, key, _ = split_row(first[0])
    if namespace:
        raise window_state_error()
    return key


class TooManyTombstones(NotPeekable):
    """The error of a look-up for which RocksDB would have to skip too many removed rows."""


def _scan(family: Rdict, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Scan as `database.scan` does, but with a limit of skipped rows.

    Raises:
        TooManyTombstones: the limit is exceeded.
    """
    options = ReadOptions()
    options.set_max_skippable_internal_keys(MAX_SKIPPED)
    try:
        yield from scan(family, start, stop, options)
    except StorageError as error:
        if "Too many internal keys skipped" not in error.message:
            raise
        raise TooManyTombstones(
            "too many entries of the state were removed recently, and the lookup cannot skip them"
        ) from None
