"""Preparation of values whose declared type contains `Any` or a datetime: `dict[str, Any]`, a dataclass with a bare `list` field.

msgspec writes the declared parts itself. An `Any` would lose types. A tuple would become a list, and an aware datetime
would be read in UTC. A Decimal, a UUID or an enum member would become text or a number. `compile_tagger` creates a
function that replaces such values, including keys of dictionaries, by extensions that keep the type. msgspec writes all
other values.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from operator import attrgetter
from typing import Any

from msgspec import inspect as mi

from penstock.common.type_info.row_change import RowChange, is_row_change
from penstock.state.encoding.tagged import Unencodable, tag, type_name

Tagger = Callable[[Any], Any]


def compile_tagger(info: mi.Type) -> Tagger | None:
    """Return the tagger, or None if the type contains neither `Any` nor a datetime, so that its values need no preparation.

    >>> tagger = compile_tagger(mi.type_info(dict[str, Any]))
    >>> type(tagger({"a": (1, 2)})["a"]).__name__
    'Ext'
    >>> compile_tagger(mi.type_info(dict[str, int])) is None
    True
    """
    return _compile(info, ())


def _compile(info: mi.Type, outer: tuple[type, ...]) -> Tagger | None:
    if isinstance(info, mi.AnyType) or (isinstance(info, mi.CustomType) and info.cls is object):
        return tag
    if isinstance(info, mi.DateTimeType):
        return _with_offset
    if isinstance(info, mi.Metadata):
        return _compile(info.type, outer)
    if isinstance(info, mi.CollectionType):
        item = _compile(info.item_type, outer)
        return None if item is None else lambda value: list(map(item, value))
    if isinstance(info, mi.TupleType):
        items = [_compile(member, outer) or _unchanged for member in info.item_types]
        if all(item is _unchanged for item in items):
            return None
        return lambda value: [item(part) for item, part in zip(items, value, strict=True)]
    if isinstance(info, mi.DictType):
        return _compile_dict(_compile(info.key_type, outer), _compile(info.value_type, outer))
    if isinstance(info, mi.UnionType):
        return _compile_optional(info, outer)
    if isinstance(info, mi.StructType | mi.DataclassType | mi.TypedDictType | mi.NamedTupleType):
        return _compile_record(info, outer)
    return None


class TaggedKey:
    """A hashable wrapper of the replacement of a key. The encoder writes the replacement (`tagged`)."""

    __slots__ = ("tagged",)

    def __init__(self, tagged: Any) -> None:
        self.tagged = tagged


def _compile_dict(of_key: Tagger | None, of_value: Tagger | None) -> Tagger | None:
    if of_key is None:
        return None if of_value is None else lambda value: {key: of_value(part) for key, part in value.items()}
    tag_value = of_value or _unchanged

    def tag_key(key: Any) -> Any:
        tagged = of_key(key)
        return key if tagged is key else TaggedKey(tagged)

    return lambda value: {tag_key(key): tag_value(part) for key, part in value.items()}


def _with_offset(value: Any) -> Any:
    """Return a datetime with an offset as text, which keeps the offset. Return other values unchanged. msgspec refuses values that are not
    datetimes.
    """
    if type(value) is not datetime or value.tzinfo is None:
        return value
    if type(value.tzinfo) is not timezone:
        raise Unencodable(
            value,
            f"a declared datetime cannot store a {type_name(type(value.tzinfo))}: store value.astimezone(UTC), or declare no type",
        )
    offset = value.utcoffset()
    if offset and offset % timedelta(minutes=1):
        raise Unencodable(
            value,
            "a declared datetime can only store offsets of whole minutes: store value.astimezone(UTC), or declare no type",
        )
    return value.isoformat() if offset else value


def _unchanged(value: Any) -> Any:
    return value


def _compile_optional(info: mi.UnionType, outer: tuple[type, ...]) -> Tagger | None:
    """Return the tagger of X for `X | None` and for both forms of a Row. Other unions need no tagger, unless they contain datetimes."""
    members = [member for member in info.types if not isinstance(member, mi.NoneType) and not is_row_change(member)]
    if len(members) != 1:
        return _with_offset if any(isinstance(member, mi.DateTimeType) for member in members) else None
    tagger = _compile(members[0], outer)
    if tagger is None:
        return None
    if any(map(is_row_change, info.types)):
        return _row_tagger(tagger)
    return lambda value: None if value is None else tagger(value)


def _row_tagger(tag_fields: Tagger) -> Tagger:
    """Return the function that prepares Rows in either stored form."""

    def tag_row(row: Any) -> Any:
        if type(row) is tuple:
            return tag_fields(row)
        return RowChange(row.kind, tag_fields(row.fields)) if type(row) is RowChange else row

    return tag_row


def _compile_record(
    info: mi.StructType | mi.DataclassType | mi.TypedDictType | mi.NamedTupleType, outer: tuple[type, ...]
) -> Tagger | None:
    if info.cls in outer:
        return None
    taggers = [_compile(field.type, (*outer, info.cls)) for field in info.fields]
    if not any(taggers):
        return None
    names = [field.encode_name for field in info.fields]
    if isinstance(info, mi.TypedDictType):
        by_name = {name: tagger or _unchanged for name, tagger in zip(names, taggers, strict=True)}
        return lambda value: {name: by_name.get(name, _unchanged)(part) for name, part in value.items()}
    return _record_tagger(info, names, [tagger or _unchanged for tagger in taggers])


def _record_tagger(
    info: mi.StructType | mi.DataclassType | mi.NamedTupleType, names: list[str], taggers: list[Tagger]
) -> Tagger:
    cls = info.cls
    getters = [attrgetter(field.name) for field in info.fields]
    tags: dict[str, Any] = {}
    if isinstance(info, mi.StructType) and info.tag is not None and info.tag_field is not None:
        tags[info.tag_field] = info.tag
    if isinstance(info, mi.NamedTupleType) or (isinstance(info, mi.StructType) and info.array_like):

        def as_array(value: Any) -> Any:
            if type(value) is not cls:
                return value
            return [*tags.values(), *(tagger(get(value)) for get, tagger in zip(getters, taggers, strict=True))]

        return as_array

    def as_map(value: Any) -> Any:
        if type(value) is not cls:
            return value
        return tags | {name: tagger(get(value)) for name, get, tagger in zip(names, getters, taggers, strict=True)}

    return as_map
