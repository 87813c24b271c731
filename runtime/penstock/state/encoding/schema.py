"""The description of stored values as JSON, and the compatibility of two descriptions.

The description is part of every snapshot. For a field with a default, it contains only that the field may be missing, and not the default.
It also contains names of classes, which do not affect compatibility. These changes are compatible:

- a field added with a default, or a field removed
- a number widened (int to float or Decimal, float to Decimal)
- a type that allows more values (`int` to `int | None`, another member of an Enum)
- changes that the rules of Avro and Protobuf allow

All other changes would need a guess. They are refused with an error that shows the old and the new description.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from typing import Any, get_origin

import numpy as np
from msgspec import inspect as mi

from penstock.common.errors import StateSchemaIncompatible
from penstock.common.type_info.row_change import is_row_change
from penstock.common.types import Row
from penstock.state.encoding.key_hash import is_model
from penstock.state.encoding.messages.avro_evolution import avro_incompatibility
from penstock.state.encoding.messages.protobuf_evolution import protobuf_incompatibility
from penstock.state.encoding.tagged import type_name

Schema = dict[str, Any]

ANY: Schema = {"type": "any"}
CUSTOM_TYPES: tuple[type, ...] = (Row, np.generic, np.ndarray, deque, Counter)
"""Classes that msgspec does not support but `tagged` does."""

_SIMPLE: dict[type, str] = {
    mi.AnyType: "any",
    mi.NoneType: "none",
    mi.BoolType: "bool",
    mi.IntType: "int",
    mi.FloatType: "float",
    mi.StrType: "str",
    mi.BytesType: "bytes",
    mi.ByteArrayType: "bytearray",
    mi.DateTimeType: "datetime",
    mi.DateType: "date",
    mi.TimeType: "time",
    mi.TimeDeltaType: "timedelta",
    mi.UUIDType: "uuid",
    mi.DecimalType: "decimal",
}
_COLLECTIONS: dict[type, str] = {
    mi.ListType: "list",
    mi.VarTupleType: "vartuple",
    mi.SetType: "set",
    mi.FrozenSetType: "frozenset",
}
_MESSAGE_KINDS = {"avro": avro_incompatibility, "protobuf": protobuf_incompatibility}
_WIDER = {"int": ("float", "decimal"), "float": ("decimal",)}


class UnknownType(TypeError):
    """An annotation whose values cannot be encoded. `annotation` is the innermost such annotation."""

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation
        name = type_name(annotation) if isinstance(annotation, type) else repr(annotation)
        super().__init__(f"{name} has no encoding")


def describe(annotation: Any) -> Schema:
    """Return the description of values of that type.

    Raises:
        UnknownType: a class has no fields and no encoding.
        TypeError: msgspec cannot distinguish the members of a union.

    >>> describe(dict[str, tuple[int, float]])
    {'type': 'dict', 'key': {'type': 'str'}, 'value': {'type': 'tuple', 'of': [{'type': 'int'}, {'type': 'float'}]}}
    """
    return _describe(mi.type_info(annotation), ())


def _describe(info: mi.Type, outer: tuple[type, ...]) -> Schema:
    simple = _SIMPLE.get(type(info))
    if simple is not None:
        return {"type": simple}
    if isinstance(info, mi.Metadata):
        return _describe(info.type, outer)
    if isinstance(info, mi.CollectionType):
        return {"type": _COLLECTIONS[type(info)], "of": _describe(info.item_type, outer)}
    if isinstance(info, mi.TupleType):
        return {"type": "tuple", "of": [_describe(item, outer) for item in info.item_types]}
    if isinstance(info, mi.DictType):
        return {"type": "dict", "key": _describe(info.key_type, outer), "value": _describe(info.value_type, outer)}
    if isinstance(info, mi.UnionType):
        return _describe_union(info, outer)
    if isinstance(info, mi.EnumType):
        return {"type": "enum", "values": sorted((m.value for m in info.cls), key=str)}
    if isinstance(info, mi.LiteralType):
        return {"type": "literal", "values": sorted(info.values, key=str)}
    if isinstance(info, mi.StructType | mi.DataclassType | mi.TypedDictType | mi.NamedTupleType):
        return _describe_record(info, outer)
    if isinstance(info, mi.CustomType):
        return _describe_custom(info.cls, outer)
    raise UnknownType(getattr(info, "cls", info))


def _describe_union(info: mi.UnionType, outer: tuple[type, ...]) -> Schema:
    """Describe a union. The two forms of a Row have the same fields, and become a single row."""
    changes = [member for member in info.types if is_row_change(member)]
    members = [_describe(member, outer) for member in info.types if member not in changes]
    if changes:
        members = [member | {"type": "row"} if member["type"] == "tuple" else member for member in members]
    return {"type": "union", "of": members} if len(members) > 1 else members[0]


def _describe_record(
    info: mi.StructType | mi.DataclassType | mi.TypedDictType | mi.NamedTupleType, outer: tuple[type, ...]
) -> Schema:
    if info.cls in outer:
        return {"type": "ref", "name": info.cls.__name__}
    inner = (*outer, info.cls)
    array = isinstance(info, mi.NamedTupleType) or (isinstance(info, mi.StructType) and info.array_like)
    schema: Schema = {
        "type": "record",
        "name": info.cls.__name__,
        "layout": "array" if array else "map",
        "fields": [_field(f.encode_name, _describe(f.type, inner), required=f.required) for f in info.fields],
    }
    tag = getattr(info, "tag", None)
    if tag is not None:
        schema["tag"] = tag
    return schema


def _field(name: str, schema: Schema, *, required: bool) -> Schema:
    return {"name": name, "schema": schema} if required else {"name": name, "schema": schema, "optional": True}


def _describe_custom(cls: Any, outer: tuple[type, ...]) -> Schema:
    if cls is object:
        return ANY
    if is_model(cls):
        if cls in outer:
            return {"type": "ref", "name": cls.__name__}
        fields = [
            _field(name, _describe(mi.type_info(f.annotation), (*outer, cls)), required=f.is_required())
            for name, f in cls.model_fields.items()
        ]
        return {"type": "record", "name": cls.__name__, "layout": "model", "fields": fields}
    known = get_origin(cls) or cls
    if isinstance(known, type) and issubclass(known, CUSTOM_TYPES):
        return {"type": "custom", "name": type_name(known)}
    raise UnknownType(cls)


def incompatibility(old: Schema, new: Schema, at: str = "the value") -> str:
    """Return why values described by `old` cannot be read as `new`, or an empty text if they can.

    >>> incompatibility(describe(int), describe(float | None))
    ''
    >>> incompatibility(describe(float), describe(int))
    'the value was float and is int'
    """
    if old["type"] == "union" or new["type"] == "union":
        return _union_incompatibility(old, new, at)
    kind, now = old["type"], new["type"]
    if (kind, now) == ("tuple", "row"):  # versions that stored no kinds described rows as tuples
        kind = now
    if kind != now:
        if now in _WIDER.get(kind, ()) or (now == "any" and kind in {"none", "bool", "int", "float", "str", "bytes"}):
            return ""
        return f"{at} was {kind} and is {now}"
    if kind in {"list", "vartuple", "set", "frozenset"}:
        return incompatibility(old["of"], new["of"], f"an item of {at}")
    if kind in {"tuple", "row"}:
        if len(old["of"]) != len(new["of"]):
            return f"{at} had {len(old['of'])} items and has {len(new['of'])}"
        reasons = (
            incompatibility(was, is_, f"item {i} of {at}")
            for i, (was, is_) in enumerate(zip(old["of"], new["of"], strict=True))
        )
        return next(filter(None, reasons), "")
    if kind == "dict":
        if not _are_same_keys(without_names(old["key"]), without_names(new["key"])):
            return f"the keys of {at} changed"
        return incompatibility(old["value"], new["value"], f"a value of {at}")
    if kind in {"enum", "literal"}:
        gone = [value for value in old["values"] if value not in new["values"]]
        return f"{at} can no longer be {', '.join(map(repr, gone))}" if gone else ""
    if kind == "record":
        return _record_incompatibility(old, new, at)
    if kind in _MESSAGE_KINDS:
        return _MESSAGE_KINDS[kind](old, new, at)
    return "" if old.get("name") == new.get("name") else f"{at} was {old['name']} and is {new['name']}"


def _are_same_keys(old: Any, new: Any) -> bool:
    """Return whether the descriptions of keys are equal. Rows were described as tuples before their kinds were stored."""
    if isinstance(old, dict) and isinstance(new, dict) and (old.get("type"), new.get("type")) == ("tuple", "row"):
        return len(old["of"]) == len(new["of"]) and all(map(_are_same_keys, old["of"], new["of"]))
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_are_same_keys, old, new))
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_are_same_keys(old[name], new[name]) for name in old)
    return bool(old == new)


def _union_incompatibility(old: Schema, new: Schema, at: str) -> str:
    news = new["of"] if new["type"] == "union" else [new]
    for was in old["of"] if old["type"] == "union" else [old]:
        reasons = [incompatibility(was, is_, at) for is_ in news]
        if all(reasons):
            return reasons[0] if len(reasons) == 1 else f"{at} could be {was['type']} and no longer can"
    return ""


def _record_incompatibility(old: Schema, new: Schema, at: str) -> str:
    if (old["layout"], old.get("tag")) != (new["layout"], new.get("tag")):
        return f"{at} was a {old['layout']} record with tag {old.get('tag')!r}, and is {new['layout']} with {new.get('tag')!r}"
    before = {field["name"]: field for field in old["fields"]}
    for field in new["fields"]:
        name = field["name"]
        was = before.get(name)
        if was is None:
            if not field.get("optional"):
                return f"field {name!r} of {at} is new and has no default"
            continue
        if was.get("optional") and not field.get("optional") and old["layout"] == "array":
            return f"field {name!r} of {at} had a default and has none"
        reason = incompatibility(was["schema"], field["schema"], f"field {name!r} of {at}")
        if reason:
            return reason
    return ""


def check_compatible(old: Schema, new: Schema, *, state: str, operator: str) -> None:
    """Check that the new schema can read values of the old schema.

    Raises:
        StateSchemaIncompatible: the schemas are incompatible. The error shows both schemas and the first relevant difference.
    """
    reason = incompatibility(old, new)
    if reason:
        raise StateSchemaIncompatible(
            f"state {state!r} cannot be read as the program declares it: {reason}\n"
            f"  in the snapshot: {json.dumps(old)}\n"
            f"  in the program:  {json.dumps(new)}",
            remedy="give new fields a default, and keep the types of old fields. Or use a new state name for the new type, and copy "
            "the values in the function",
            operator=operator,
        )


def without_names(schema: Any) -> Any:
    """Return the description without the names of classes, which do not affect compatibility.

    >>> import msgspec
    >>> class Old(msgspec.Struct):
    ...     a: int
    >>> class New(msgspec.Struct):
    ...     a: int
    >>> without_names(describe(Old)) == without_names(describe(New))
    True
    """
    if isinstance(schema, list):
        return [without_names(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    named = schema.get("type") == "record"
    return {key: without_names(value) for key, value in schema.items() if not (named and key == "name")}
