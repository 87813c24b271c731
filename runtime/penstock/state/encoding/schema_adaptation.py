"""Reading values of an older schema where names alone do not do it: records stored as arrays.

NamedTuples and array-like structs are stored by position. When their fields changed, a stored value is decoded without
types, its arrays are laid out as the new type expects, and the result is encoded again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import NODEFAULT
from msgspec import inspect as mi

if TYPE_CHECKING:
    from penstock.state.encoding.schema import Schema


def needs_adapting(old: Schema, new: Schema) -> bool:
    """Whether a record stored as an array has other fields, or the same in another order, anywhere inside."""
    if old["type"] != new["type"]:
        members = [s for s in (old, new) if s["type"] == "union"]
        if not members:
            return False
        olds = old["of"] if old["type"] == "union" else [old]
        news = new["of"] if new["type"] == "union" else [new]
        return any(needs_adapting(was, is_) for was in olds for is_ in news)
    kind = old["type"]
    if kind == "union":
        return any(needs_adapting(was, is_) for was in old["of"] for is_ in new["of"])
    if kind == "tuple":
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
    """Whether a key of a dictionary, at any depth, is stored as a map, which nothing that decodes without types can take for a key."""
    if schema["type"] == "dict" and _holds_map(schema["key"]):
        return True
    return any(map(has_records_as_keys, _parts(schema)))


def _holds_map(schema: Schema) -> bool:
    return schema.get("layout") == "map" or any(map(_holds_map, _parts(schema)))


def _parts(schema: Schema) -> list[Schema]:
    of = schema.get("of", [])
    parts = [of] if isinstance(of, dict) else list(of)
    parts += [schema[part] for part in ("key", "value") if part in schema]
    return parts + [field["schema"] for field in schema.get("fields", [])]


def adapt(raw: Any, old: Schema, info: mi.Type) -> Any:
    """A value decoded without types, laid out for the new type.

    Args:
        raw: as msgpack gives it: lists for arrays, dicts for maps.
        old: the schema it was stored under.
        info: the new type, as `msgspec.inspect.type_info` gives it.
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
    """Optional records are adapted; of several kinds of records the one whose shape fits is."""
    olds = old["of"] if old["type"] == "union" else [old]
    news = info.types if isinstance(info, mi.UnionType) else (info,)
    layout = "array" if isinstance(raw, list) else "map" if isinstance(raw, dict) else ""
    records = [was for was in olds if was["type"] == "record" and was["layout"] == layout]
    for was in records:
        for now in news:
            if isinstance(now, mi.NamedTupleType) or (isinstance(now, mi.StructType) and now.array_like):
                if layout == "array":
                    return adapt(raw, was, now)
            elif layout == "map" and isinstance(now, mi.StructType | mi.DataclassType | mi.TypedDictType):
                return adapt(raw, was, now)
    return raw


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
