"""Conversion of nested values for Arrow. Objects and Rows inside a record become dicts, by the rules of `DeclaredFields`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pyarrow as pa

from penstock.common.type_info.declared_fields import DeclaredFields
from penstock.common.typeinfo import MapTypeInfo, RowTypeInfo, TypeInformation
from penstock.connectors.formats.arrow_types import ARRAYS, fields_of_class, is_optional, without_none

Write = Callable[[Any], Any]


def writer_of(declared: Any, arrow: pa.DataType) -> Write | None:
    """Return the function that converts a value (or None) to Arrow's form. If Arrow accepts the values unchanged, return no function.

    Args:
        declared: the annotation, the type information or the Arrow type of the field.

    The function raises FieldMismatch.
    """
    declared = _plain(declared)
    if pa.types.is_struct(arrow):
        return _struct_writer(declared, arrow)
    if pa.types.is_map(arrow):
        kind = declared.value_type if isinstance(declared, MapTypeInfo) else _argument(declared, 1, arrow.item_type)
        item = writer_of(kind, arrow.item_type)
        return None if item is None else _map_writer(item)
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        kind = declared.element_type if isinstance(declared, ARRAYS) else _argument(declared, 0, arrow.value_type)
        item = writer_of(kind, arrow.value_type)
        return None if item is None else _list_writer(item)
    return None


def _map_writer(item: Write) -> Write:
    return lambda value: None if value is None else [(key, item(part)) for key, part in value.items()]


def _list_writer(item: Write) -> Write:
    return lambda value: None if value is None else list(map(item, value))


def _struct_writer(declared: Any, arrow: pa.DataType) -> Write:
    names = [field.name for field in arrow]
    if isinstance(declared, RowTypeInfo):
        kinds: list[Any] = declared.get_field_types()
        fields = declared.declared_fields
    else:
        annotations = fields_of_class(declared) if isinstance(declared, type) else None
        kinds = [field.type for field in arrow] if annotations is None else list(annotations.values())
        optional = [name for name, kind in zip(names, kinds, strict=True) if annotations and is_optional(kind)]
        fields = DeclaredFields(names, optional=[*optional, *getattr(declared, "__optional_keys__", ())])
    parts = [(field.name, writer_of(kind, field.type)) for field, kind in zip(arrow, kinds, strict=True)]

    def write(value: Any) -> Any:
        if value is None:
            return None
        items = zip(parts, fields.values(value), strict=True)
        return {name: item if inner is None else inner(item) for (name, inner), item in items}

    return write


def _plain(declared: Any) -> Any:
    if isinstance(declared, (pa.DataType, RowTypeInfo, MapTypeInfo, *ARRAYS)):
        return declared
    return without_none(declared.python_type if isinstance(declared, TypeInformation) else declared)


def _argument(declared: Any, index: int, otherwise: pa.DataType) -> Any:
    """Return an argument of an annotation such as `list[Point]`. If the annotation has no arguments, return `otherwise`."""
    found = get_args(declared)
    return found[index] if len(found) > index else otherwise
