"""Fields of records: functions that read fields from tuples, dicts, Rows, dataclasses and other objects, and replace fields in a copy.

A getter is chosen for the first record of a batch, so that the loop over the batch is a `map` over a C function.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import re
from dataclasses import is_dataclass, replace
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.common.errors import RecordFormatError
from penstock.common.types import Row

if TYPE_CHECKING:
    from collections.abc import Callable

Field = str | int
"""A field's name, or its position counted from 0."""

PLAIN = (
    int,
    float,
    decimal.Decimal,
    str,
    bytes,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    np.number,
    np.bool_,
    np.datetime64,
)
"""Types of values without fields. Their field 0 is the value itself, as in PyFlink's aggregates."""

_POSITION = re.compile(r"f?(\d+)|_([1-9]\d*)")
_MISSING = (KeyError, IndexError, TypeError, AttributeError)


def getter_for(field: Field, sample: Any) -> Callable[[Any], Any]:
    """Return the fastest function that reads `field` from records of the type of `sample`.

    >>> getter_for("t", {"t": 3})({"t": 4}), getter_for(1, (0, 5))((7, 8))
    (4, 8)
    >>> getter_for(0, 3)(5)
    5
    """
    if isinstance(field, int):
        if isinstance(sample, tuple | list | Row):
            return itemgetter(field)
        if field == 0 and isinstance(sample, PLAIN):
            return _itself
        names = field_names(sample)
        if names is not None and -len(names) <= field < len(names):
            return getter_for(names[field], sample)
        return itemgetter(field)
    if isinstance(sample, dict | Row):
        return itemgetter(field)
    if (
        isinstance(sample, tuple | list)
        and not hasattr(sample, "_fields")
        and (place := position_of(field)) is not None
    ):
        return itemgetter(place)
    return attrgetter(field)


def position_of(name: str) -> int | None:
    """Return the position that a tuple's field name means. The spellings are Flink's `f1` and `1`, and `_2`, which counts from 1.

    >>> position_of("f1"), position_of("1"), position_of("_2"), position_of("name")
    (1, 1, 1, None)
    """
    found = _POSITION.fullmatch(name)
    if found is None:
        return None
    return int(found[2]) - 1 if found[2] is not None else int(found[1])


def field_of(selector: Any) -> Field | None:
    """Return the field that a key selector reads, or None if the selector does more than that.

    >>> field_of(itemgetter("id")), field_of(lambda v: v["id"])
    ('id', None)
    """
    field = selector.__reduce__()[1][0] if type(selector) is itemgetter else getattr(selector, "field", None)
    return field if isinstance(field, int | str) else None


def field_names(record: Any) -> tuple[str, ...] | None:
    """Return the names of a record's fields in order, or None if they have no names."""
    if isinstance(record, dict):
        return tuple(record)
    if isinstance(record, Row):
        names = record.get_field_names()
        return None if names is None else tuple(names)
    for attribute in ("_fields", "__struct_fields__", "__dataclass_fields__", "model_fields"):
        names = getattr(type(record), attribute, None)
        if names is not None:
            return tuple(names)
    return tuple(vars(record)) if hasattr(record, "__dict__") else None


def read_field(values: list[Any], field: Field) -> list[Any]:
    """Return the field of every record.

    Raises:
        RecordFormatError: a record does not have the field. The error names the field and the record's fields.
    """
    if not values:
        return []
    try:
        return list(map(getter_for(field, values[0]), values))
    except _MISSING:
        return [read_one(value, field) for value in values]


def read_one(value: Any, field: Field) -> Any:
    """Return the field of one record. It raises the errors of `read_field`."""
    try:
        return getter_for(field, value)(value)
    except _MISSING:
        raise RecordFormatError(
            f"no field {field!r} in the record {shortened(value)}: it has {_fields_text(value)}",
            remedy="name a field that every record has, or map the records into one shape first",
        ) from None


def _fields_text(record: Any) -> str:
    """Return a description of the record's fields for a message.

    >>> _fields_text({"k": 1}), _fields_text((1, 2)), _fields_text(3)
    ('the fields k', 'the positions 0 to 1', 'no fields')
    """
    names = field_names(record)
    if names:
        return f"the fields {', '.join(map(str, names))}"
    return (
        f"the positions 0 to {len(record) - 1}"
        if isinstance(record, tuple | list | Row) and len(record)
        else "no fields"
    )


def setter_for(field: Field, sample: Any) -> Callable[[Any, Any], Any]:
    """Return a function that copies a record of the type of `sample` and sets the field in the copy.

    >>> setter_for(1, (1, 2, 3))((4, 5, 6), 9), setter_for("b", {"b": 2})({"a": 1, "b": 2}, 9)
    ((4, 9, 6), {'a': 1, 'b': 9})
    """
    if isinstance(sample, PLAIN) and field == 0:
        return lambda record, value: value
    if isinstance(field, str) and (isinstance(sample, list) or _is_plain_tuple(sample)):
        position = position_of(field)
        field = field if position is None else position
    if _is_plain_tuple(sample) and isinstance(field, int):
        position = field
        if position < 0:  # other records may have another length
            return lambda record, value: (*record[:position], value, *record[len(record) + position + 1 :])
        return lambda record, value: (*record[:position], value, *record[position + 1 :])
    names = field_names(sample)
    name = names[field] if isinstance(field, int) and names is not None else field
    if isinstance(sample, dict):
        return lambda record, value: {**record, name: value}
    if isinstance(sample, tuple):
        return lambda record, value: record._replace(**{str(name): value})
    if isinstance(sample, Row):
        return lambda record, value: _with_item(Row.of(record, record.get_field_names()), field, value)
    if isinstance(sample, list):
        return lambda record, value: _with_item(record[:], field, value)
    if is_dataclass(sample):
        return lambda record, value: replace(record, **{str(name): value})
    if isinstance(sample, msgspec.Struct):
        return lambda record, value: msgspec.structs.replace(record, **{str(name): value})
    if hasattr(sample, "model_copy"):
        return lambda record, value: record.model_copy(update={str(name): value})
    return lambda record, value: _with_attribute(copy.copy(record), str(name), value)


def _is_plain_tuple(record: Any) -> bool:
    return isinstance(record, tuple) and not hasattr(record, "_replace")


def _itself(record: Any) -> Any:
    return record


def _with_item(record: Any, field: Field, value: Any) -> Any:
    record[field] = value
    return record


def _with_attribute(record: Any, name: str, value: Any) -> Any:
    setattr(record, name, value)
    return record


def shortened(value: Any, limit: int = 300) -> str:
    """Return a record's text for a message, cut off at `limit` characters."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
