"""Keys of state as people and programs write them in a URL or on a command line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.checkpoint.savepoint.entries import plain
from penstock.rest.errors import BadRequest

MOST_NESTED = 32
"""Lists within lists of a key: what goes through them calls itself."""


def readings(key: str) -> Iterator[Any]:
    """What a person can mean by the text of a key: JSON, such as 7 or ["a", 1], or the text itself.

    Raises:
        BadRequest: lists of lists, deeper than keys are.
    """
    try:
        value = json.loads(key)
    except (ValueError, RecursionError):
        pass
    else:
        if value != key:
            yield _hashable(value, MOST_NESTED)
    yield key


def _hashable(value: Any, levels: int) -> Any:
    if not isinstance(value, list):
        return value
    if not levels:
        raise BadRequest(
            f"the key is of lists within lists, more than {MOST_NESTED} deep",
            remedy="ask for a text, number, bool or null, or a list of such",
        )
    return tuple(_hashable(item, levels - 1) for item in value)


def check_type(keys: Sequence[object], name: str, key: str) -> None:
    """Nothing was found: perhaps because keys are of another type, as far as some of them tell.

    Args:
        keys: some of the state's.

    Raises:
        BadRequest: no key of the state is of a type that the text can mean.
    """
    kinds = {_kind(plain(stored)) for stored in keys}
    meant = [_kind(plain(value)) for value in readings(key)]
    if kinds and not kinds & set(meant):
        raise BadRequest(
            f"the key {key!r} is a {meant[0]}, and the keys of state {name!r} are of another type",
            remedy=f"write a {' or a '.join(sorted(kinds))} as JSON, such as {json.dumps(plain(keys[0]), ensure_ascii=False)}",
        )


def _kind(value: object) -> str:
    """What JSON calls it.

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
