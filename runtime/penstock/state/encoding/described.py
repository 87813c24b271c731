"""Conversion of values and keys that were decoded without their classes. The result has the shape that their schema describes.

A record is stored as a map or by position. Equal keys have the same stored form, and 1.0 equals 1. So a key that is
declared as a float may be stored as an int.
"""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from penstock.common.types import RowKind
from penstock.state.encoding.messages.views import message_view
from penstock.state.encoding.schema import ANY
from penstock.state.encoding.tagged import StructKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.state.encoding.schema import Schema

_NUMBERS: dict[str, Callable[[Any], Any]] = {"bool": bool, "float": float, "decimal": Decimal}


def described(value: Any, schema: Schema, *, named: bool = True) -> Any:
    """Convert a value that was decoded without types to the shape that its schema describes.

    Args:
        named: whether records stored by position (NamedTuples, array-like structs) become dicts of their fields. If False, such records
            become lists.

    >>> fields = [{"name": "x", "schema": {"type": "int"}}, {"name": "y", "schema": {"type": "float"}}]
    >>> described([1, 2], {"type": "record", "name": "Point", "layout": "array", "fields": fields})
    {'x': 1, 'y': 2.0}
    """
    inner = partial(described, named=named)
    kind = schema["type"]
    if kind == "union":
        member = _member(schema)
        return value if value is None or member is None else inner(value, member)
    if kind in {"list", "vartuple", "set", "frozenset"} and isinstance(value, list):
        return [inner(item, schema["of"]) for item in value]
    if kind in {"tuple", "row"} and isinstance(value, list):
        return tuple(map(inner, value, schema["of"]))
    if kind == "row" and isinstance(value, dict):
        return {"kind": str(RowKind(value["k"])), "fields": tuple(map(inner, value["f"], schema["of"]))}
    if kind == "dict" and isinstance(value, dict):
        return {key: inner(item, schema["value"]) for key, item in value.items()}
    if kind == "record":
        return _record(value, schema, named=named)
    if kind in ("avro", "protobuf") and isinstance(value, bytes):
        return message_view(value, schema)
    return _number(value, kind)


def _member(schema: Schema) -> Schema | None:
    """Return the union's only member that is not None, or else its only record. Return None if neither exists."""
    members = [member for member in schema["of"] if member["type"] != "none"]
    records = [member for member in members if member["type"] == "record"]
    return next((found[0] for found in (members, records) if len(found) == 1), None)


def _record(value: Any, schema: Schema, *, named: bool) -> Any:
    inner = partial(described, named=named)
    schemas = {field["name"]: field["schema"] for field in schema["fields"]}
    if isinstance(value, list):
        tags = 0 if schema.get("tag") is None else 1
        items = [inner(item, of) for item, of in zip(value[tags:], schemas.values(), strict=False)]
        return dict(zip(schemas, items, strict=False)) if named else value[:tags] + items
    if isinstance(value, dict):
        return {name: inner(item, schemas.get(name, ANY)) for name, item in value.items()}
    return value


def _number(value: Any, kind: str) -> Any:
    return _NUMBERS[kind](value) if kind in _NUMBERS and type(value) in (int, float) else value


def described_key(key: Any, schema: Schema) -> Any:
    """Convert a key that was decoded without types. A structured key stays a `StructKey`, so that it can be a key of a dict.

    >>> described_key((1, 2), {"type": "tuple", "of": [{"type": "bool"}, {"type": "float"}]})
    (True, 2.0)
    """
    if isinstance(key, StructKey):
        schemas = {field["name"]: field["schema"] for field in schema.get("fields", ())}
        flat = iter(key)
        pairs = zip(flat, flat, strict=True)
        return StructKey(chain.from_iterable((name, described_key(v, schemas.get(name, ANY))) for name, v in pairs))
    if isinstance(key, tuple):
        return tuple(map(described_key, key, _parts(schema)))
    return _number(key, schema["type"])


def _parts(schema: Schema) -> Iterable[Schema]:
    match schema["type"]:
        case "tuple":
            of: list[Schema] = schema["of"]
            return of
        case "vartuple":
            return repeat(schema["of"])
        case "record":
            return [field["schema"] for field in schema["fields"]]
    return repeat(ANY)
