"""The conversion of declared types (annotations, type information) into Arrow types."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import types
import typing
from functools import lru_cache
from typing import Any, Union, get_args, get_origin

import pyarrow as pa

from penstock.common.errors import InvalidJob
from penstock.common.type_info.type_information import DecimalTypeInfo
from penstock.common.typeinfo import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

if typing.TYPE_CHECKING:
    from collections.abc import Hashable

ARRAYS = (BasicArrayTypeInfo, ListTypeInfo, ObjectArrayTypeInfo, PrimitiveArrayTypeInfo)
"""Classes of type information with an `element_type`."""

_BASIC: dict[BasicType, pa.DataType] = {
    BasicType.STRING: pa.string(),
    BasicType.CHAR: pa.string(),
    BasicType.BYTE: pa.int8(),
    BasicType.BOOLEAN: pa.bool_(),
    BasicType.SHORT: pa.int16(),
    BasicType.INT: pa.int32(),
    BasicType.LONG: pa.int64(),
    BasicType.FLOAT: pa.float32(),
    BasicType.DOUBLE: pa.float64(),
    BasicType.BIG_DEC: pa.decimal128(38, 18),
}

_PYTHON: dict[Any, pa.DataType] = {
    str: pa.string(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    bytes: pa.binary(),
    decimal.Decimal: pa.decimal128(38, 18),
    datetime.date: pa.date32(),
    datetime.time: pa.time64("us"),
    datetime.datetime: pa.timestamp("us"),
}


def is_optional(annotation: Any) -> bool:
    """Return True if None is a value of the type. Every type information allows None.
    >>> is_optional(int | None), is_optional(int)
    (True, False)
    """
    if isinstance(annotation, TypeInformation) or annotation in (Any, None, type(None)):
        return True
    return get_origin(annotation) in (Union, types.UnionType) and type(None) in get_args(annotation)


def without_none(annotation: Any) -> Any:
    """Return the annotation without `| None`.
    >>> without_none(int | None)
    <class 'int'>
    """
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    rest = [arg for arg in get_args(annotation) if arg is not type(None)]
    return rest[0] if len(rest) == 1 else annotation


@lru_cache(maxsize=1024)
def fields_of_class(cls: Hashable) -> dict[str, Any] | None:
    """Return names and annotations of a NamedTuple, dataclass, TypedDict or msgspec Struct; None for another class."""
    if not isinstance(cls, type):
        return None
    if dataclasses.is_dataclass(cls):
        names = [field.name for field in dataclasses.fields(cls) if field.init]
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        names = list(cls._fields)
    elif hasattr(cls, "__struct_fields__"):
        names = list(cls.__struct_fields__)
    elif typing.is_typeddict(cls):
        names = list(cls.__annotations__)
    else:
        return None
    hints = typing.get_type_hints(cls)
    return {name: hints.get(name, Any) for name in names}


def arrow_type(declared: Any, name: str) -> pa.DataType:
    """Return the Arrow type of a field.

    Raises:
        InvalidJob: the type has no columns (Any, a union, a class without fields). The error names the field.
    >>> arrow_type(list[int | None], "counts")
    ListType(list<item: int64>)
    """
    if isinstance(declared, pa.DataType):
        return declared
    found = _of_type_info(declared, name) if isinstance(declared, TypeInformation) else _of_annotation(declared, name)
    if found is None:
        raise InvalidJob(
            f"field {name!r} of type {declared!r} cannot become a column",
            remedy="use int, float, str, bool, bytes, Decimal, date, time, datetime, lists, dicts with str keys, "
            "dataclasses and NamedTuples of these, or the Types of penstock.common.typeinfo",
        )
    return found


def _of_annotation(declared: Any, name: str) -> pa.DataType | None:
    annotation = without_none(declared)
    if get_origin(annotation) is typing.Annotated:
        annotation = get_args(annotation)[0]
    try:
        if annotation in _PYTHON:
            return _PYTHON[annotation]
    except TypeError:
        return None
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is list:
        return pa.list_(arrow_type(args[0], name))
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return pa.list_(arrow_type(args[0], name))
    if origin is dict:
        return pa.map_(arrow_type(args[0], name), arrow_type(args[1], name))
    fields = fields_of_class(annotation)
    if fields:
        return pa.struct([pa.field(key, arrow_type(value, f"{name}.{key}")) for key, value in fields.items()])
    return None


def _of_type_info(declared: TypeInformation, name: str) -> pa.DataType | None:
    if isinstance(declared, DecimalTypeInfo):
        make = pa.decimal128 if declared.precision <= 38 else pa.decimal256
        return make(declared.precision, declared.scale)
    if isinstance(declared, BasicTypeInfo):
        return _BASIC.get(declared.basic_type)
    if isinstance(declared, ARRAYS):
        return pa.binary() if declared.python_type is bytes else pa.list_(arrow_type(declared.element_type, name))
    if isinstance(declared, MapTypeInfo):
        return pa.map_(arrow_type(declared.key_type, name), arrow_type(declared.value_type, name))
    if isinstance(declared, RowTypeInfo):
        pairs = zip(declared.get_field_names(), declared.get_field_types(), strict=True)
        return pa.struct([pa.field(key, arrow_type(value, f"{name}.{key}")) for key, value in pairs])
    if isinstance(declared, TupleTypeInfo):
        return None
    return _of_annotation(declared.python_type, name)


def annotation_of(arrow: pa.DataType) -> Any:
    """Return the Python type of an Arrow type's values, or Any if there is no such type.
    >>> annotation_of(pa.list_(pa.int32()))
    list[int]
    """
    checks: tuple[tuple[Any, Any], ...] = (
        (pa.types.is_boolean, bool),
        (pa.types.is_integer, int),
        (pa.types.is_floating, float),
        (pa.types.is_decimal, decimal.Decimal),
        (pa.types.is_timestamp, datetime.datetime),
        (pa.types.is_date, datetime.date),
        (pa.types.is_time, datetime.time),
        (pa.types.is_duration, datetime.timedelta),
    )
    for check, annotation in checks:
        if check(arrow):
            return annotation
    if pa.types.is_string(arrow) or pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow):
        return str
    if pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow) or pa.types.is_fixed_size_binary(arrow):
        return bytes
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return types.GenericAlias(list, (annotation_of(arrow.value_type),))
    if pa.types.is_map(arrow):
        return types.GenericAlias(dict, (annotation_of(arrow.key_type), annotation_of(arrow.item_type)))
    if pa.types.is_dictionary(arrow):
        return annotation_of(arrow.value_type)
    return Any
