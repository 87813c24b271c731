"""Conversion between the values of a key and positions, which are JSON."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable
from typing import Any

from penstock.common.errors import InvalidJob

_KINDS: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "decimal": (decimal.Decimal, str, decimal.Decimal),
    "uuid": (uuid.UUID, str, uuid.UUID),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
}


def position_of(value: Any) -> Any:
    """Return the value of a key as JSON.

    Raises:
        InvalidJob: a key cannot have values of this type.

    >>> position_of(7), position_of(datetime.date(2013, 7, 1)), key_of(position_of(decimal.Decimal("1.50")))
    (7, ['date', '2013-07-01'], Decimal('1.50'))
    """
    if isinstance(value, int | str) and not isinstance(value, bool):
        return value
    for name, (kind, write, _) in _KINDS.items():
        if isinstance(value, kind):
            return [name, write(value)]
    raise InvalidJob(
        f"the key {value!r} has the type {type(value).__name__}, which a key cannot have",
        remedy="name a column of integers, text, dates, times or decimals",
    )


def key_of(position: Any) -> Any:
    """Return the value of a key from its position."""
    if isinstance(position, list):
        return _KINDS[position[0]][2](position[1])
    return position
