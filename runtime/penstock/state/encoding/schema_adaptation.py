"""Conversion of values whose older schema stores records as arrays. Such records have no field names in their bytes, so
the decoder cannot match the old fields with the new fields by name.

NamedTuples and array-like structs are stored by position. If their fields have changed, a stored value is decoded
without types. Its arrays are rearranged for the new type, and the result is encoded again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import NODEFAULT
from msgspec import inspect as mi

from penstock.common.type_info.row_change import is_row_change

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.state.encoding.schema import Schema


def needs_adapting(old: Schema, new: Schema) -> bool:
    """Return whether a record stored as an array, at any depth, has other fields or another order of fields."""
    if old["type"] != new["type"] and (old["type"], new["type"]) != ("tuple", "row"):
        members = [s for s in (old, new) if s["type"] == "union"]
        if not members:
            return False
        olds = old["of"] if old["type"] == "union" else [old]
        news = new["of"] if new["type"] == "union" else [new]
        return any(needs_adapting(was, is_) for was in olds for is_ in news)
    kind = old["type"]
    if kind == "union":
        return any(needs_adapting(was, is_) for was in old["of"] for is_ in new["of"])
    if kind in {"tuple", "row"}:
        return any(map(needs_adapting, old["of"], new["of"]))
    if kind == "dict":
        return needs_adapting(old["value"], new["value"])
    if kind == "record":
        before = {field["name"]: field["schema"] for field in old["fields"]}
        if old["layout"] == "array" and list(before) != [field["name"] for field in new["fields"]]:
            return True
        return any(
            needs_adapting(before[field["name"]], field["schema"]) for field in new["fields"] if field["name"] in before
        )
    return isinstance(old.get("of"), dict) and needs_adapting(old["of"], new["of"])


def has_records_as_keys(schema: Schema) -> bool:
    """Return whether a dictionary, at any depth, has records as keys that are stored as maps. Decoding without types fails for such keys."""
    if schema["type"] == "dict" and _contains_map(schema["key"]):
        return True
    return any(map(has_records_as_keys, _parts(schema)))


def _contains_map(schema: Schema) -> bool:
    return schema.get("layout") == "map" or schema["type"] == "row" or any(map(_contains_map, _parts(schema)))


def _parts(schema: Schema) -> list[Schema]:
    of = schema.get("of", [])
    parts = [of] if isinstance(of, dict) else list(of)
    parts += [schema[part] for part in ("key", "value") if part in schema]
    return parts + [field["schema"] for field in schema.get("fields", [])]


def adapt(raw: Any, old: Schema, info: mi.Type) -> Any:
    """Rearrange a value for the new type. The value was decoded without types.

    Args:
        raw: the decoded msgpack: lists for arrays, dicts for maps.
        old: schema of the stored value.
        info: the new type, from `msgspec.inspect.type_info`.
    """
    if isinstance(info, mi.Metadata):
        return adapt(raw, old, info.type)
    if old["type"] == "union" or isinstance(info, mi.UnionType):
        return raw if raw is None else _adapt_member(raw, old, info)
    if isinstance(info, mi.CollectionType):
        return [adapt(item, old["of"], info.item_type) for item in raw]
    if isinstance(info, mi.TupleType):
        return [adapt(item, was, now) for item, was, now in zip(raw, old["of"], info.item_types, strict=True)]
    if isinstance(info, mi.DictType):
        return {key: adapt(item, old["value"], info.value_type) for key, item in raw.items()}
    if isinstance(info, mi.StructType | mi.DataclassType | mi.TypedDictType | mi.NamedTupleType):
        return _adapt_record(raw, old, info)
    return raw


def _adapt_member(raw: Any, old: Schema, info: mi.Type) -> Any:
    """Adapt a value of a union. If several types are stored as arrays, or as maps, the tag identifies the type of a value."""
    olds = old["of"] if old["type"] == "union" else [old]
    news = info.types if isinstance(info, mi.UnionType) else (info,)
    if isinstance(raw, dict):
        rows = [was for was in olds if was["type"] == "row"]
        if rows:
            return _adapt_row_change(raw, rows[0], news)
        was, now = _pair(raw, [was for was in olds if _is_map(was)], [now for now in news if isinstance(now, _MAPS)])
    elif isinstance(raw, list):
        arrays = [now for now in news if isinstance(now, _ARRAYS) or getattr(now, "array_like", False)]
        was, now = _pair(raw, [was for was in olds if _is_array(was)], arrays)
    else:
        return raw
    return raw if was is None or now is None else adapt(raw, was, now)


def _adapt_row_change(raw: dict[Any, Any], old: Schema, news: Iterable[mi.Type]) -> Any:
    """Adapt a Row that is not of kind INSERT. Its map has the kind and the fields."""
    (change,) = (now for now in news if is_row_change(now))
    assert isinstance(change, mi.StructType)
    (fields,) = (field for field in change.fields if field.name == "fields")
    return raw | {fields.encode_name: adapt(raw[fields.encode_name], old, fields.type)}


_MAPS = (mi.DictType, mi.StructType, mi.DataclassType, mi.TypedDictType)
_ARRAYS = (mi.CollectionType, mi.TupleType, mi.NamedTupleType)


def _is_map(schema: Schema) -> bool:
    return schema["type"] == "dict" or schema.get("layout") == "map"


def _is_array(schema: Schema) -> bool:
    return schema["type"] in {"list", "vartuple", "set", "frozenset", "tuple", "row"} or schema.get("layout") == "array"


def _pair(raw: Any, olds: list[Schema], news: list[Any]) -> tuple[Schema | None, mi.Type | None]:
    """Return the old and the new type of the value, or None for both if no new type fits."""
    for now in news:
        tag = getattr(now, "tag", None)
        if tag is None or tag == (raw.get(now.tag_field) if isinstance(raw, dict) else raw[0]):
            return next((was for was in olds if was.get("tag") == tag), None), now
    return None, None


def _adapt_record(
    raw: Any, old: Schema, info: mi.StructType | mi.DataclassType | mi.TypedDictType | mi.NamedTupleType
) -> Any:
    before = {field["name"]: field["schema"] for field in old["fields"]}
    if old["layout"] != "array":
        now = {field.encode_name: field.type for field in info.fields}
        return {
            name: adapt(item, before[name], now[name]) if name in before and name in now else item
            for name, item in raw.items()
        }
    items = list(raw)
    tag = [items.pop(0)] if old.get("tag") is not None else []
    values = dict(zip(before, items, strict=False))
    for field in info.fields:
        name = field.encode_name
        if name in values:
            tag.append(adapt(values[name], before[name], field.type))
        elif field.default is not NODEFAULT:
            tag.append(field.default)
        elif field.default_factory is not NODEFAULT:
            tag.append(field.default_factory())
        else:
            raise ValueError(f"field {name!r} has no value and no default")
    return tag
