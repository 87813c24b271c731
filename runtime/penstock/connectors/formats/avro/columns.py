"""Records of an Avro schema as columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.connectors.formats.avro.schema import AvroSchema, fastavro, is_recursive
from penstock.connectors.formats.shape import TIME_OF_UTC, Field, RecordShape

_PLAIN = {
    "string": pa.string(),
    "enum": pa.string(),
    "int": pa.int64(),  # damaged messages may have more than 32 bits
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
}
_LOGICAL = {
    "int-date": pa.date32(),
    "int-time-millis": pa.time64("us"),
    "long-time-micros": pa.time64("us"),
    "long-timestamp-millis": TIME_OF_UTC,
    "long-timestamp-micros": TIME_OF_UTC,
    "long-local-timestamp-millis": pa.timestamp("us"),
    "long-local-timestamp-micros": pa.timestamp("us"),
}
_MOST_DIGITS = 38


def shape_of(schema: AvroSchema, *, rows: bool) -> RecordShape | None:
    """Return the shape of a schema's records, or None if the schema is not a record or a field cannot become a column.

    These fields have no columns: unions of several types, UUIDs, and records that contain their own type. If `rows` is True,
    lists, maps and nested records have no columns either.
    """
    parsed = schema.parsed
    if not isinstance(parsed, dict) or parsed.get("type") != "record" or not parsed["fields"] or is_recursive(parsed):
        return None
    named: dict[str, Any] = {}
    kinds = [(field["name"], _column(field["type"], named)) for field in parsed["fields"]]
    fields = [Field(name, kind, optional=True) for name, kind in kinds if kind is not None]
    if len(fields) < len(kinds) or (rows and any(pa.types.is_nested(field.type) for field in fields)):
        return None
    return RecordShape(fields, "row" if rows else "dict")


def _column(schema: Any, named: dict[str, Any]) -> pa.DataType | None:
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        return _column(others[0], named) if len(others) == 1 else None
    if isinstance(schema, str):
        return _column(named[schema], named) if schema in named else _PLAIN.get(schema)
    kind = schema["type"]
    if not isinstance(kind, str):
        return _column(kind, named)
    if "name" in schema:
        named[schema["name"]] = schema
    if kind == "array":
        item = _column(schema["items"], named)
        return None if item is None else pa.list_(item)
    if kind == "map":
        value = _column(schema["values"], named)
        return None if value is None else pa.map_(pa.string(), value)
    if kind == "record":
        parts = [(field["name"], _column(field["type"], named)) for field in schema["fields"]]
        known = [pa.field(name, part) for name, part in parts if part is not None]
        return pa.struct(known) if len(known) == len(parts) else None
    logical = f"{kind}-{schema.get('logicalType')}"
    if logical not in fastavro("fastavro.read").LOGICAL_READERS:
        return _column(kind, named)
    if logical.endswith("-decimal") and schema["precision"] <= _MOST_DIGITS:
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    return _LOGICAL.get(logical)
