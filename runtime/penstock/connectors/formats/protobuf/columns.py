"""Records of a Protobuf message as columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.connectors.formats.protobuf.schema import file_proto
from penstock.connectors.formats.protobuf.values import DURATION, ENUM, TIMESTAMP, WRAPPERS, is_map
from penstock.connectors.formats.shape import TIME_OF_UTC, Field, RecordShape

STRING = 9
_PLAIN = {
    1: pa.float64(),
    2: pa.float32(),
    3: pa.int64(),
    4: pa.uint64(),
    5: pa.int32(),
    6: pa.uint64(),
    7: pa.uint32(),
    8: pa.bool_(),
    9: pa.string(),
    12: pa.binary(),
    13: pa.uint32(),
    15: pa.int32(),
    16: pa.int64(),
    17: pa.int32(),
    18: pa.int64(),
}


def shape_of(descriptor: Any, *, rows: bool) -> RecordShape | None:
    """Return the shape of a message's records, or None if a field cannot become a column.

    These fields have no columns: messages that contain their own type, and enumerations inside lists, maps or nested messages. If `rows`
    is True, lists, maps and nested messages have no columns either.
    """
    kinds = [(field.name, _column(field, (descriptor.full_name,))) for field in descriptor.fields]
    known = [Field(name, kind, optional=True) for name, kind in kinds if kind is not None]
    if not known or len(known) < len(kinds) or (rows and any(pa.types.is_nested(field.type) for field in known)):
        return None
    return RecordShape(known, "row" if rows else "dict")


def enumerations(descriptor: Any) -> list[str]:
    """Return the fields with an enumeration. Their values are names, or numbers if a number has no name."""
    return [field.name for field in descriptor.fields if field.type == ENUM]


def cannot_fail(descriptor: Any) -> bool:
    """Return True if every parsed message can certainly become a record.

    Two things can fail: a time outside Python's range, and a proto2 text that is not UTF-8. The function does not look into nested
    messages. It returns False if there are any.
    """
    if any(field.message_type is not None for field in descriptor.fields):
        return False
    return file_proto(descriptor.file).syntax == "proto3" or all(field.type != STRING for field in descriptor.fields)


def _column(field: Any, above: tuple[str, ...]) -> pa.DataType | None:
    if is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        kinds = _single(key, above), _single(value, above)
        return None if None in kinds or value.type == ENUM else pa.map_(*kinds)
    single = _single(field, above)
    if not field.is_repeated:
        return None if field.type == ENUM and len(above) > 1 else single
    return None if single is None or field.type == ENUM else pa.list_(single)


def _single(field: Any, above: tuple[str, ...]) -> pa.DataType | None:
    if field.type == ENUM:
        return pa.string()
    message = field.message_type
    if message is None:
        return _PLAIN.get(field.type)
    name = message.full_name
    if name == TIMESTAMP:
        return TIME_OF_UTC
    if name == DURATION:
        return pa.duration("us")
    if name in WRAPPERS:
        return _single(message.fields_by_name["value"], above)
    if name in above or not message.fields:
        return None
    parts = [(inner.name, _column(inner, (*above, name))) for inner in message.fields]
    known = [pa.field(inner, kind) for inner, kind in parts if kind is not None]
    return pa.struct(known) if len(known) == len(parts) else None
