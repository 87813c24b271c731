"""Entries of a state as they are printed: names and values that JSON can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli.output import text
from penstock.state.encoding.keys import with_dicts
from penstock.state.encoding.tagged import StructKey

if TYPE_CHECKING:
    from penstock.checkpoint.savepoint.contents import Entry

_IF_ANY = {"namespace", "expiry"}
"""Left out of an entry that has none."""


def columns(entry: Entry) -> dict[str, Any]:
    """What is printed of an entry, by column."""
    fields = entry._asdict() if isinstance(entry, tuple) else msgspec.to_builtins(entry)
    return {name: _plain(value) for name, value in fields.items() if value is not None or name not in _IF_ANY}


def _plain(value: Any) -> Any:
    """JSON has only text as keys: others are written as JSON themselves."""
    if isinstance(value, StructKey):
        return _plain(with_dicts(value))
    if isinstance(value, dict):
        return {text(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return list(map(_plain, value))
    return msgspec.to_builtins(value, enc_hook=str)
