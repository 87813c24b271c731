"""Comparison of a value before and after a round trip: equal, of the same type, at every depth.

`==` cannot decide this: `1 == True == np.float64(1.0)`, `nan != nan`, `0.0 == -0.0`, and arrays return arrays.
"""

from __future__ import annotations

import struct
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from datetime import datetime, time
from decimal import Decimal
from enum import Enum
from itertools import zip_longest
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from penstock.common.types import Row


def difference(sent: Any, got: Any, path: str = "it") -> str | None:
    """Return the first difference with the path to it, or None if the values are the same."""
    if type(sent) is not type(got):
        return f"{path}: {type(sent)} {sent!r} became {type(got)} {got!r}"
    if isinstance(sent, Enum):
        return None if sent is got else f"{path}: another member object than {sent!r}"
    if not _is_same_by_itself(sent, got):
        return f"{path}: {sent!r} became {got!r}"
    for name, part, other in _parts(sent, got):
        found = difference(part, other, f"{path}{name}")
        if found is not None:
            return found
    return None


def _is_same_by_itself(sent: Any, got: Any) -> bool:
    """Return whether the values are the same, without a comparison of the values that they contain."""
    if isinstance(sent, float):
        return struct.pack("d", sent) == struct.pack("d", got)
    if isinstance(sent, complex):
        return _is_same_by_itself(sent.real, got.real) and _is_same_by_itself(sent.imag, got.imag)
    if isinstance(sent, Decimal):
        return str(sent) == str(got)
    if isinstance(sent, np.ndarray):
        layout = [(a.dtype, a.shape, a.flags.f_contiguous and not a.flags.c_contiguous) for a in (sent, got)]
        return layout[0] == layout[1] and (sent.dtype.hasobject or sent.tobytes() == got.tobytes())
    if isinstance(sent, np.generic):
        return bool(sent.dtype == got.dtype) and sent.tobytes() == got.tobytes()
    if isinstance(sent, array):
        return sent.typecode == got.typecode and sent.tobytes() == got.tobytes()
    if isinstance(sent, datetime | time):
        return sent.isoformat() == got.isoformat() and sent.fold == got.fold
    if isinstance(sent, ZoneInfo):
        return sent.key == got.key
    if isinstance(sent, dict | list | tuple | set | frozenset | deque | Row) or _fields(sent):
        return True
    return bool(sent == got)


def _parts(sent: Any, got: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(sent, np.ndarray):
        if sent.dtype == object:
            yield from _items(sent.ravel().tolist(), got.ravel().tolist())
    elif isinstance(sent, Row):
        yield ".kind", sent.get_row_kind(), got.get_row_kind()
        yield ".names", sent.get_field_names(), got.get_field_names()
        yield from _items(list(sent), list(got))
    elif isinstance(sent, dict):
        yield from _items(_ordered(sent), _ordered(got))
    elif isinstance(sent, set | frozenset):
        yield from _items(sorted(sent, key=_rank), sorted(got, key=_rank))
    elif isinstance(sent, list | tuple | deque):
        yield from _items(list(sent), list(got))
    if isinstance(sent, defaultdict):
        yield ".default_factory", sent.default_factory, got.default_factory
    if isinstance(sent, deque):
        yield ".maxlen", sent.maxlen, got.maxlen
    if isinstance(sent, datetime | time):
        yield ".tzinfo", sent.tzinfo, got.tzinfo
    else:
        for name in _fields(sent):
            yield f".{name}", getattr(sent, name, _MISSING), getattr(got, name, _MISSING)


_MISSING = "missing"


def _items(sent: list[Any], got: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    for n, (part, other) in enumerate(zip_longest(sent, got, fillvalue=_MISSING)):
        yield f"[{n}]", part, other


def _ordered(mapping: dict[Any, Any]) -> list[Any]:
    """Return keys and values in order. The order of a Counter's entries has no meaning, so they are sorted."""
    items = sorted(mapping.items(), key=_rank) if isinstance(mapping, Counter) else list(mapping.items())
    return [part for item in items for part in item]


def _rank(item: Any) -> str:
    """Return a sort key for items that have no order. Equal sets have the same key."""
    if isinstance(item, set | frozenset):
        return f"{type(item)} {sorted(map(_rank, item))}"
    if isinstance(item, tuple):
        return f"{type(item)} {list(map(_rank, item))}"
    if isinstance(item, complex):
        return f"{type(item)} {_rank(item.real)} {_rank(item.imag)}"
    if isinstance(item, float):  # NaNs with different bits have the same text
        return f"{type(item)} {item!r} {struct.pack('d', item).hex()}"
    return f"{type(item)} {item!r}"


def _fields(value: Any) -> list[str]:
    """Return the names of the instance's attributes, in slots or in its dictionary, without those of its class."""
    if isinstance(value, type | np.generic | np.ndarray | np.dtype):
        return []
    if not type(value).__module__.startswith("tests"):
        return []
    slots = [name for cls in type(value).__mro__ for name in _slots(cls) if not name.startswith("_")]
    return [*slots, *getattr(value, "__dict__", ())]


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
