"""Keys of state as texts that people and programs write in a URL or on a command line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.checkpoint.savepoint.entries import plain
from penstock.rest.errors import BadRequest

MAX_NESTING = 32
"""Maximum depth of lists in a key, because their processing is recursive."""


def readings(key: str) -> Iterator[Any]:
    """Yield the possible meanings of a key's text: JSON, such as 7 or ["a", 1], or the text itself.

    Raises:
        BadRequest: the lists are nested more deeply than in any key.
    """
    try:
        value = json.loads(key)
    except (ValueError, RecursionError):
        pass
    else:
        if value != key:
            yield _hashable(value, MAX_NESTING)
    yield key


def _hashable(value: Any, levels: int) -> Any:
    if not isinstance(value, list):
        return value
    if not levels:
        raise BadRequest(
            f"the key has lists nested more than {MAX_NESTING} levels deep",
            remedy="use a text, number, bool or null, or a list of these",
        )
    return tuple(_hashable(item, levels - 1) for item in value)


def check_type(keys: Sequence[object], name: str, key: str) -> None:
    """Compare the type of a key that a search did not find with the types of known keys.

    Args:
        keys: some keys of the state.

    Raises:
        BadRequest: none of these keys has a type that the text can represent.
    """
    kinds = {_kind(plain(stored)) for stored in keys}
    meant = [_kind(plain(value)) for value in readings(key)]
    if kinds and not kinds & set(meant):
        raise BadRequest(
            f"the key {key!r} is a {meant[0]}, but the keys of state {name!r} have another type",
            remedy=f"write a {' or a '.join(sorted(kinds))} as JSON, such as {json.dumps(plain(keys[0]), ensure_ascii=False)}",
        )


def _kind(value: object) -> str:
    """Return JSON's name of the value's type.

    >>> [_kind(value) for value in ("a", 7, True, [1], None)]
    ['text', 'number', 'truth value', 'list', 'null']
    """
    kinds: list[tuple[type | tuple[type, ...], str]] = [
        (bool, "truth value"),
        ((int, float), "number"),
        (str, "text"),
        (list, "list"),
        (dict, "object"),
    ]
    return next((name for of, name in kinds if isinstance(value, of)), "null")
