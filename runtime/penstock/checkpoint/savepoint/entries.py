"""Entries of a state in the form of JSON, for the command line and for REST."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.state.encoding.keys import with_dicts
from penstock.state.encoding.tagged import StructKey

if TYPE_CHECKING:
    from penstock.checkpoint.savepoint.contents import Entry

_IF_ANY = {"namespace", "expiry"}
"""Fields that are left out if an entry has no value for them."""


def columns(entry: Entry) -> dict[str, Any]:
    """Return the values of an entry by column."""
    fields = entry._asdict() if isinstance(entry, tuple) else msgspec.to_builtins(entry)
    return {name: plain(value) for name, value in fields.items() if value is not None or name not in _IF_ANY}


def plain(value: Any) -> Any:
    """Return a value whose keys are texts, as JSON needs. Convert each other key to JSON text.

    >>> plain({1: (2, 3), "a": {4}})
    {'1': [2, 3], 'a': [4]}
    """
    if isinstance(value, StructKey):
        return plain(with_dicts(value))
    if isinstance(value, dict):
        return {_text(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return list(map(plain, value))
    return msgspec.to_builtins(value, enc_hook=str)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
