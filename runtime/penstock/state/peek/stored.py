"""The current state of one key in its stored form, for look-ups from outside, which change nothing.

The client decodes this form without the program's classes (`state.peek.rows`). So an answer from a task has the same form as an answer from
a checkpoint. Only the namespace None is supported. A task encodes only as much as it can in a short time, and stops at fixed limits. A
single value, element or entry is encoded, or read, as a whole before its size is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from penstock.common.errors import JobError
from penstock.state.snapshot_format.segment import StateInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.state.encoding.keys import KeyCodec
    from penstock.state.ttl.expiry import Lifetime

K = TypeVar("K")
C = TypeVar("C")

MAX_ITEMS = 1000
"""Maximum number of elements of a list, or of entries of a map."""
MAX_BYTES = 256 * 2**10
MAX_SCANNED = 4 * MAX_ITEMS
"""Maximum number of items of a list or a map that are visited, including expired items."""


class NotPeekable(JobError):
    """An error of a look-up that tasks cannot answer. A look-up in the newest checkpoint may succeed."""

    code = "NOT_PEEKABLE"


class Peeked(msgspec.Struct):
    """The answer of a task. `items`: the encoded value, list elements or map values; empty if the key has no state.

    `map_keys`: the encoded keys of a map. `sample`: another encoded key of the state, if this key has no state and another key has.
    """

    info: StateInfo
    key_schema: dict[str, Any]
    items: list[bytes]
    map_keys: list[bytes] = []
    sample: bytes | None = None


class Typed(NamedTuple):
    """A key in its declared type, such as an Enum."""

    key: Any


def typed_key(keys: KeyCodec, key: Any) -> Typed | None:
    """Return a builtin key in its declared type. None means that no key of the state can equal `key`."""
    try:
        encoded = keys.encode(key)
        typed = keys.decode(encoded)
        return Typed(typed) if keys.encode(typed) == encoded else None
    except (JobError, ValueError, TypeError):  # msgspec raises a ValueError for values that it cannot convert
        return None


def bounded(
    found: Iterable[tuple[K, C]],
    encode: Callable[[C], bytes],
    encode_key: Callable[[K], bytes] | None,
    is_visible: Callable[[C], bool] | None,
) -> tuple[list[bytes], list[bytes]]:
    """Return the encoded live items of a key and their encoded map keys. Stop visiting and encoding at the bounds.

    Args:
        encode_key: function that encodes map keys. None means that the items are not entries of a map.
        is_visible: function that checks the expiry. None means that no item expires.

    Raises:
        NotPeekable: the result is larger than a task may return.
    """
    items: list[bytes] = []
    keys: list[bytes] = []
    size = 0
    for walked, (key, cell) in enumerate(found):
        if walked == MAX_SCANNED:
            raise NotPeekable(f"the key has more than {MAX_SCANNED} items in this state, most of them expired")
        if is_visible is not None and not is_visible(cell):
            continue
        if len(items) == MAX_ITEMS:
            raise NotPeekable(
                f"the key has more than {MAX_ITEMS} items in this state, which is the limit of a lookup in a task"
            )
        items.append(encode(cell))
        size += len(items[-1])
        if encode_key is not None:
            keys.append(encode_key(key))
            size += len(keys[-1])
        if size > MAX_BYTES:
            raise NotPeekable(
                f"the key has more than {MAX_BYTES >> 10} KiB in this state, which is the limit of a lookup in a task"
            )
    return items, keys


def window_state_error() -> NotPeekable:
    return NotPeekable("the state belongs to windows, but tasks only look up state of keys")


def is_visible(expiry: int, lifetime: Lifetime) -> bool:
    """Return whether a function would see a value with this expiry time."""
    return lifetime.returns_expired or expiry > lifetime.now()
