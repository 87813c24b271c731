"""Functions on arrays, maps, multisets and rows. An array and a row are tuples, a map is a dict, and a multiset is a dict of counts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from penstock.common.errors import UserFunctionError
from penstock.sql.expressions.functions import Build, call, text
from penstock.sql.expressions.writer import Target, Value
from penstock.sql.plan.types import SqlType

Array = tuple[Any, ...]


def array_item(array: Array, position: int) -> Any:
    """Return the element at a position from 1, or None outside of the array.

    >>> array_item((7, 8), 2), array_item((7, 8), 3)
    (8, None)
    """
    return array[position - 1] if 1 <= position <= len(array) else None


def only_element(array: Array) -> Any:
    """Return the element of an array with at most one element."""
    if len(array) > 1:
        raise UserFunctionError(f"ELEMENT needs an array with one element, got {len(array)} elements")
    return array[0] if array else None


def distinct(array: Array) -> Array:
    """Return the array without repetitions. Elements may be maps, so they need no hash."""
    return tuple(_distinct(array))


def _distinct(elements: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    try:
        return list(dict.fromkeys(elements))
    except TypeError:
        for element in elements:
            if element not in found:
                found.append(element)
        return found


def position(array: Array, element: Any) -> int:
    return array.index(element) + 1 if element in array else 0


def remove(array: Array, element: Any) -> Array:
    return tuple(found for found in array if found != element)


def union(left: Array, right: Array) -> Array:
    return distinct(left + right)


def intersect(left: Array, right: Array) -> Array:
    return tuple(found for found in _distinct(left) if found in right)


def except_(left: Array, right: Array) -> Array:
    return tuple(found for found in _distinct(left) if found not in right)


def slice_of(array: Array, start: int, end: int | None = None) -> Array:
    """Return the elements between two positions, both included. Negative positions count from the end, and 0 counts as 1.

    >>> slice_of((1, 2, 3, 4), -3, -2), slice_of((1, 2, 3, 4), 0, 2)
    ((2, 3), (1, 2))
    """
    size = len(array)
    first = size + start if start < 0 else max(0, start - 1)
    last = size if end is None else size + end + 1 if end < 0 else max(1, end)
    if start < 0 and first < 0:
        first = 0
    return array[first : max(first, last)] if array else ()


def joined(array: Array, delimiter: str, null: str | None = None) -> str:
    """Return the texts of the elements with a delimiter. NULL is skipped, or written as `null`."""
    parts = [null if part is None else part for part in array]
    return delimiter.join([part for part in parts if part is not None])


def ordered(array: Array, ascending: Any = True, nulls_first: Any = None) -> Array:
    nulls = [None] * array.count(None)
    rest = sorted((found for found in array if found is not None), reverse=not ascending)
    first = ascending if nulls_first is None else nulls_first
    return tuple([*nulls, *rest] if first else [*rest, *nulls])


def greatest(array: Array) -> Any:
    return max((found for found in array if found is not None), default=None)


def least(array: Array) -> Any:
    return min((found for found in array if found is not None), default=None)


def map_of_arrays(keys: Array, values: Array) -> dict[Any, Any]:
    if len(keys) != len(values):
        raise UserFunctionError(
            f"MAP_FROM_ARRAYS needs arrays of the same length, got {len(keys)} keys and {len(values)} values"
        )
    return dict(zip(keys, values, strict=True))


def merged(*maps: dict[Any, Any]) -> dict[Any, Any]:
    return {key: value for found in maps for key, value in found.items()}


def map_of_text(source: str, entry: str = ",", pair: str = "=") -> dict[str, str | None]:
    """Return the map of a text such as `a=1,b=2`. The delimiters are regular expressions."""
    if not source:
        return {}
    parts = (re.split(pair, part, maxsplit=1) for part in re.split(entry, source))
    return {part[0]: part[1] if len(part) > 1 else None for part in parts}


def split(source: str, delimiter: str) -> Array:
    return tuple(source.split(delimiter)) if delimiter else tuple(source)


def _converted(compiler: Target, values: Iterable[Value], type: SqlType) -> str:
    """Return the source of a tuple of the values, each converted to the type."""
    return "(" + "".join(f"{compiler.convert(value, type)}, " for value in values) + ")"


def _array(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    return _assigned(compiler, type, _converted(compiler, arguments, type.element))


def _map(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    keys = [compiler.convert(value, type.key) for value in arguments[::2]]
    values = [compiler.convert(value, type.value) for value in arguments[1::2]]
    pairs = ", ".join(f"{key}: {value}" for key, value in zip(keys, values, strict=True))
    return _assigned(compiler, type, "{" + pairs + "}")


def _row(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    parts = [compiler.convert(value, field) for value, (_, field) in zip(arguments, type.fields, strict=True)]
    return _assigned(compiler, type, "(" + "".join(f"{part}, " for part in parts) + ")")


def _assigned(compiler: Target, type: SqlType, source: str) -> Value:
    name = compiler.writer.variable()
    compiler.writer.line(f"{name} = {source}")
    return Value(name, type, nullable=False)


def _item(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    collection, key = arguments
    writer = compiler.writer
    if collection.type.name == "MAP":
        found = compiler.convert(key, collection.type.key)
        return writer.strict(type, [collection, found], f"{collection}.get({found})", may_be_null=True)
    if collection.type.name != "ARRAY":
        raise compiler.refusal(f"an item of {collection.type}")
    return writer.strict(
        type, arguments, f"{writer.use('array_item', array_item)}({collection}, {key})", may_be_null=True
    )


def _on_element(function: Any) -> Build:
    """Return the writer of a function of an array and an element. The element may be NULL."""

    def build(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
        array, element = arguments
        found = compiler.convert(element, array.type.element)
        name = compiler.writer.use(f"n_{function.__name__}", function)
        return compiler.writer.strict(type, [array], f"{name}({array}, {found})")

    return build


def _append(template: str) -> Build:
    def build(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
        array, element = arguments
        found = compiler.convert(element, type.element)
        return compiler.writer.strict(type, [array], template.format(array, found))

    return build


def _join(compiler: Target, type: SqlType, arguments: list[Value]) -> Value:
    name = compiler.writer.use("n_joined", joined)
    return compiler.writer.strict(type, arguments, f"{name}({', '.join(map(str, arguments))})")


def _contains(array: Array, element: Any) -> bool:
    return element in array


FUNCTIONS: dict[str, Build] = {
    "ARRAY": _array,
    "MAP": _map,
    "ROW": _row,
    "ITEM": _item,
    "CARDINALITY": text("len({0})"),
    "ELEMENT": call(only_element, may_be_null=True),
    "ARRAY_APPEND": _append("{0} + ({1},)"),
    "ARRAY_CONCAT": lambda compiler, type, arguments: compiler.writer.strict(
        type, arguments, " + ".join(map(str, arguments))
    ),
    "ARRAY_CONTAINS": _on_element(_contains),
    "ARRAY_DISTINCT": call(distinct),
    "ARRAY_EXCEPT": call(except_),
    "ARRAY_INTERSECT": call(intersect),
    "ARRAY_JOIN": _join,
    "ARRAY_MAX": call(greatest, may_be_null=True),
    "ARRAY_MIN": call(least, may_be_null=True),
    "ARRAY_POSITION": _on_element(position),
    "ARRAY_PREPEND": _append("({1},) + {0}"),
    "ARRAY_REMOVE": _on_element(remove),
    "ARRAY_REVERSE": text("{0}[::-1]"),
    "ARRAY_SLICE": call(slice_of),
    "ARRAY_SORT": call(ordered),
    "ARRAY_UNION": call(union),
    "MAP_ENTRIES": text("tuple({0}.items())"),
    "MAP_FROM_ARRAYS": call(map_of_arrays),
    "MAP_KEYS": text("tuple({0})"),
    "MAP_UNION": call(merged),
    "MAP_VALUES": text("tuple({0}.values())"),
    "SPLIT": call(split),
    "STR_TO_MAP": call(map_of_text),
}
