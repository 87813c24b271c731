"""Conversion of messages to Python values and back. The functions are created once for each kind of message."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from penstock.common.types import Row
from penstock.records.fields import field_names

Read = Callable[[Any], Any]
Write = Callable[[Any, Any], None]
"""Function that fills a message from a value."""

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MESSAGE, ENUM = 11, 14
TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
WRAPPERS = {f"google.protobuf.{name}Value" for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")}  # fmt: skip


class Reading:
    """A builder of readers. If `rows` is True, messages become Rows instead of dicts."""

    def __init__(self, *, rows: bool) -> None:
        self._rows = rows
        self._readers: dict[str, Read] = {}

    def reader(self, descriptor: Any) -> Read:
        """Return the function from a message to its value. A message may contain messages of the same kind."""
        name = descriptor.full_name
        if name == TIMESTAMP:
            return lambda m: _EPOCH + datetime.timedelta(seconds=m.seconds, microseconds=m.nanos // 1000)
        if name == DURATION:
            return lambda m: datetime.timedelta(seconds=m.seconds, microseconds=m.nanos / 1000)
        if name in WRAPPERS:
            return lambda m: m.value
        if name in self._readers:
            return lambda m: self._readers[name](m)
        self._readers[name] = lambda m: m  # a placeholder for recursive messages
        parts = self.fields(descriptor)
        if self._rows:
            make = Row.maker([part for part, _ in parts])
            reads = [read for _, read in parts]
            self._readers[name] = lambda m: make([read(m) for read in reads])
        else:
            self._readers[name] = lambda m: {part: read(m) for part, read in parts}
        return self._readers[name]

    def fields(self, descriptor: Any) -> list[tuple[str, Read]]:
        """Return each field's name, and the function from a message to the field's value."""
        return [(field.name, self._field(field)) for field in descriptor.fields]

    def _field(self, field: Any) -> Read:
        name = field.name
        if is_map(field):
            value = self._single(field.message_type.fields_by_name["value"])
            return lambda m: {key: value(item) for key, item in getattr(m, name).items()}
        one = self._single(field)
        if field.is_repeated:
            return lambda m: [one(item) for item in getattr(m, name)]
        if field.has_presence:
            return lambda m: one(getattr(m, name)) if m.HasField(name) else None
        return lambda m: one(getattr(m, name))

    def _single(self, field: Any) -> Read:
        if field.type == MESSAGE or field.message_type is not None:
            return self.reader(field.message_type)
        if field.type == ENUM:
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return lambda number: names.get(number, number)
        return lambda value: value


def fill(message: Any, value: Any) -> None:
    """Fill a message from a dict, a Row, or an object with the message's fields. None and missing fields are left out.

    Raises:
        TypeError, ValueError, KeyError: a value does not fit its field.
    """
    for name, item in _items(message.DESCRIPTOR, value):
        field = message.DESCRIPTOR.fields_by_name[name]
        if item is None:
            continue
        if is_map(field):
            _fill_map(getattr(message, name), field.message_type.fields_by_name["value"], item)
        elif field.is_repeated:
            if isinstance(item, str | bytes):
                raise TypeError(f"{name} is a repeated field, but {item!r} is a single value")
            target = getattr(message, name)
            for one in item:
                if field.message_type is not None:
                    _fill_single(target.add(), one)
                else:
                    target.append(_number(field, one))
        elif field.message_type is not None:
            _fill_single(getattr(message, name), item)
        else:
            setattr(message, name, _number(field, item))


def _items(descriptor: Any, value: Any) -> list[tuple[str, Any]]:
    known = [field.name for field in descriptor.fields]
    if isinstance(value, dict):
        names: Any = list(value)
    elif (found := field_names(value)) is not None:
        names = found
    elif isinstance(value, Row | tuple | list):
        return list(zip(known, value, strict=True))
    else:
        raise TypeError(f"{type(value).__name__} has no fields")
    strange = [name for name in names if name not in known]
    if strange:
        raise KeyError(f"{descriptor.full_name} has no field {', '.join(map(repr, strange))}")
    return [(name, value[name] if isinstance(value, dict) else getattr(value, name)) for name in names]


def _fill_map(target: Any, field: Any, items: dict[Any, Any]) -> None:
    for key, item in items.items():
        if field.message_type is not None:
            _fill_single(target[key], item)
        else:
            target[key] = _number(field, item)


def _fill_single(message: Any, value: Any) -> None:
    message.SetInParent()
    name = message.DESCRIPTOR.full_name
    if name == TIMESTAMP:
        aware = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        since = aware - _EPOCH
        message.seconds, message.nanos = since.days * 86_400 + since.seconds, since.microseconds * 1000
    elif name == DURATION:
        micros = value // datetime.timedelta(microseconds=1)
        seconds = abs(micros) // 1_000_000 * (1 if micros >= 0 else -1)
        message.seconds, message.nanos = seconds, (micros - seconds * 1_000_000) * 1000
    elif name in WRAPPERS:
        message.value = value
    else:
        fill(message, value)


def _number(field: Any, value: Any) -> Any:
    if field.type == ENUM and isinstance(value, str):
        if value not in field.enum_type.values_by_name:
            raise ValueError(f"{field.enum_type.full_name} has no {value!r}")
        return field.enum_type.values_by_name[value].number
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)
