"""What one key has in a state at this moment, as it would be stored: for look-ups from outside, which change nothing.

Who asks decodes it without the program's classes (`state.peeked_rows`), so an answer of a task looks as one from a checkpoint
does. Only the namespace None, and no more than a task can encode in a moment: it stops at the bound. A single value, element or entry
is encoded, or read, as a whole before its size is known.
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

MOST_ITEMS = 1000
"""Elements of a list, entries of a map."""
MOST_BYTES = 256 * 2**10
MOST_WALKED = 4 * MOST_ITEMS
"""Of a list or a map, with what has expired."""


class NotPeekable(JobError):
    """Tasks do not answer this; the newest checkpoint does."""

    code = "NOT_PEEKABLE"


class Peeked(msgspec.Struct):
    """`items`: the value, the elements of a list or the values of a map, encoded; none: the key has nothing. `map_keys`: of a map,
    encoded. `sample`: some key of the state, encoded, if this one has nothing and another has."""

    info: StateInfo
    key_schema: dict[str, Any]
    items: list[bytes]
    map_keys: list[bytes] = []
    sample: bytes | None = None


class Typed(NamedTuple):
    """A key of the type that the program declares, such as an Enum."""

    key: Any


def typed_key(keys: KeyCodec, key: Any) -> Typed | None:
    """The builtin key as the program has it; None: no key of the state can be equal to it."""
    try:
        encoded = keys.encode(key)
        typed = keys.decode(encoded)
        return Typed(typed) if keys.encode(typed) == encoded else None
    except (JobError, ValueError, TypeError):  # what msgspec cannot convert is a ValueError
        return None


def bounded(
    found: Iterable[tuple[K, C]],
    encode: Callable[[C], bytes],
    encode_key: Callable[[K], bytes] | None,
    lives: Callable[[C], bool] | None,
) -> tuple[list[bytes], list[bytes]]:
    """What is alive of a key's items, encoded, and their map keys, encoded; neither walked nor encoded beyond the bounds.

    Args:
        encode_key: None: these are no entries of a map.
        lives: None: nothing expires.

    Raises:
        NotPeekable: more than a task gives.
    """
    items: list[bytes] = []
    keys: list[bytes] = []
    size = 0
    for walked, (key, cell) in enumerate(found):
        if walked == MOST_WALKED:
            raise NotPeekable(f"the key has more than {MOST_WALKED} items in this state, most of them expired")
        if lives is not None and not lives(cell):
            continue
        if len(items) == MOST_ITEMS:
            raise NotPeekable(f"the key has more than {MOST_ITEMS} items in this state, and a task gives no more")
        items.append(encode(cell))
        size += len(items[-1])
        if encode_key is not None:
            keys.append(encode_key(key))
            size += len(keys[-1])
        if size > MOST_BYTES:
            raise NotPeekable(f"the key has more than {MOST_BYTES >> 10} KiB in this state, and a task gives no more")
    return items, keys


def of_windows() -> NotPeekable:
    return NotPeekable("the state is one of windows, and tasks give state of keys")


def lives(expiry: int, lifetime: Lifetime) -> bool:
    """A function would see what expires then."""
    return lifetime.returns_expired or expiry > lifetime.now()
