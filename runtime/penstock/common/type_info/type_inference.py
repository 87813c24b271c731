"""Inference of type information from Python's annotations and values.

PyFlink needs `output_type` on every step. Without `output_type`, it pickles the values. Penstock infers the type from
annotations that a careful author writes anyway: the return type of a function, a dataclass, a NamedTuple, a TypedDict.
A type that cannot be inferred is None ("unknown"). Its values are then encoded by their Python class.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import functools
import sys
import types
import typing
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from penstock.common.program.user_location import refusal
from penstock.common.time import Instant
from penstock.common.type_info.composite_types import ListTypeInfo, MapTypeInfo, RowTypeInfo, TupleTypeInfo
from penstock.common.type_info.type_factories import Types
from penstock.common.type_info.type_information import PickledBytesTypeInfo, TypeInformation
from penstock.common.types import Row

_BASIC: dict[Any, Callable[[], TypeInformation]] = {
    bool: Types.BOOLEAN,
    int: Types.LONG,
    float: Types.DOUBLE,
    str: Types.STRING,
    bytes: lambda: Types.PRIMITIVE_ARRAY(Types.BYTE()),
    decimal.Decimal: Types.BIG_DEC,
    datetime.date: Types.SQL_DATE,
    datetime.time: Types.SQL_TIME,
    datetime.datetime: Types.SQL_TIMESTAMP,
    Instant: Types.INSTANT,
}
_ANY = (Any, object, TypeVar, None, type(None))


class ObjectTypeInfo(TypeInformation):
    """A type given by its Python annotation: a class with fields, an Enum, an optional value, a union, a set.

    >>> class Reading(typing.NamedTuple):
    ...     station: str
    ...     celsius: float
    >>> reading = to_type_info(Reading)
    >>> reading.get_field_names(), reading.get_field_types()
    (['station', 'celsius'], [Types.STRING(), Types.DOUBLE()])
    """

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation

    @property
    def python_type(self) -> Any:
        return self._annotation

    def get_field_names(self) -> list[str]:
        """Return the fields of the class in order. A type without fields returns an empty list."""
        return list(self._fields())

    def get_field_types(self) -> list[TypeInformation]:
        return [_nested(annotation) for annotation in self._fields().values()]

    @property
    def is_mapping(self) -> bool:
        """Whether fields are read with `value["name"]`, as in a TypedDict."""
        return typing.is_typeddict(self._annotation)

    def _fields(self) -> dict[str, Any]:
        annotation = self._annotation
        if not isinstance(annotation, type):
            return {}
        hints = _hints_of(annotation)
        if dataclasses.is_dataclass(annotation):
            return {field.name: hints.get(field.name, Any) for field in dataclasses.fields(annotation)}
        for names in ("_fields", "__struct_fields__", "model_fields"):
            if hasattr(annotation, names):
                return {name: hints.get(name, Any) for name in getattr(annotation, names)}
        return hints if self.is_mapping else {}

    def _accepts(self, value: Any) -> bool:
        if self.is_mapping:
            return isinstance(value, Mapping)
        return isinstance(value, self._annotation) if isinstance(self._annotation, type) else True

    def _key(self) -> tuple[object, ...]:
        return (self._annotation,)

    def __repr__(self) -> str:
        name = getattr(self._annotation, "__qualname__", None)
        return f"ObjectTypeInfo({name if isinstance(self._annotation, type) else self._annotation})"


def to_type_info(declared: Any) -> TypeInformation | None:
    """Convert a declared type to type information. The declared type is type information, an annotation, or None.

    Returns:
        None for a declaration without information: None, Any, object, a type variable, a Row without fields.

    Raises:
        InvalidJob: the value is not a type.

    >>> to_type_info(tuple[str, list[int]])
    TupleTypeInfo([Types.STRING(), ListTypeInfo(Types.LONG())])
    >>> to_type_info(None)
    """
    if isinstance(declared, TypeInformation):
        return declared
    if declared in _ANY or isinstance(declared, TypeVar) or declared is Row:
        return None
    if isinstance(declared, str | typing.ForwardRef):
        return None
    if isinstance(declared, type) and declared in _BASIC:
        return _BASIC[declared]()
    origin, args = get_origin(declared), get_args(declared)
    if origin in (list, Sequence) or declared is list:
        return ListTypeInfo(_nested(args[0] if args else Any))
    if origin in (dict, Mapping) or declared is dict:
        key, value = args or (Any, Any)
        return MapTypeInfo(_nested(key), _nested(value))
    if origin is tuple and Ellipsis not in args:
        return TupleTypeInfo([_nested(arg) for arg in args])
    if origin is typing.Annotated:
        return to_type_info(args[0])
    if origin is not None:
        return ObjectTypeInfo(declared)
    if isinstance(declared, type):
        return None if declared in (tuple, set, frozenset) else ObjectTypeInfo(declared)
    raise refusal(
        f"{declared!r} of type {type(declared).__name__} is not a type",
        "pass a type of penstock.common.Types, or a Python type such as int, tuple[str, float] or a dataclass",
    )


def _nested(annotation: Any) -> TypeInformation:
    return to_type_info(annotation) or PickledBytesTypeInfo()


def result_type(function: Any, method: str) -> TypeInformation | None:
    """Return the type of a function's result.

    The annotation is on the object's `method`, or on the callable itself if it has no such method.
    """
    return inferred(to_type_info(_returned(function, method)))


def element_type(function: Any, method: str) -> TypeInformation | None:
    """Return the type of the elements that a function returns or yields, except pairs of an OutputTag and a value.

    >>> def words(line: str) -> typing.Iterator[str]:
    ...     yield from line.split()
    >>> element_type(words, "flat_map")
    Types.STRING()
    """
    returned = _without_none(_returned(function, method))
    args = get_args(returned)
    iterables = (list, tuple, set, frozenset, Iterable, Iterator, Generator, Sequence, AbstractSet, AsyncIterator)
    if get_origin(returned) not in iterables or not args:
        return None
    if get_origin(returned) is tuple and args[1:] != (Ellipsis,):
        return None
    return inferred(to_type_info(_without_side_outputs(args[0])))


def shared_element_type(function: Any, *methods: str) -> TypeInformation | None:
    """Return the type that all methods return or yield, or None if their types differ. A method with the annotation
    None does not count.
    """
    found = {element_type(function, method) for method in methods if _returned(function, method) is not type(None)}
    return found.pop() if len(found) == 1 else None


def inferred(type_info: TypeInformation | None) -> TypeInformation | None:
    """Return the type marked as inferred, not declared."""
    if type_info is None:
        return None
    marked = copy.copy(type_info)
    marked.is_inferred = True
    return marked


def _returned(function: Any, method: str) -> Any:
    target = _target(function, method)
    if isinstance(target, type):
        return target
    return _hints_of(target).get("return")


def _target(function: Any, method: str) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type | types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        return function
    return getattr(function, method, None) or getattr(function, "__call__")  # noqa: B004, B009 - it has the annotations


def _hints_of(target: Any) -> dict[str, Any]:
    try:
        return get_type_hints(target)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return _hints_one_by_one(target)


def _hints_one_by_one(target: Any) -> dict[str, Any]:
    """Return the annotations that can be resolved. Others, such as names imported for type checkers only, are left out."""
    function = getattr(target, "__func__", target)
    names = getattr(function, "__globals__", None) or vars(sys.modules.get(getattr(function, "__module__", ""), sys))
    hints: dict[str, Any] = {}
    for name, annotation in getattr(function, "__annotations__", {}).items():
        if isinstance(annotation, str):
            try:
                annotation = eval(annotation, dict(names))
            except (NameError, TypeError, AttributeError, SyntaxError):
                continue
        hints[name] = type(None) if annotation is None else annotation
    return hints


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [arg for arg in get_args(annotation) if arg is not type(None)]
        return rest[0] if len(rest) == 1 else annotation
    return annotation


def _without_side_outputs(annotation: Any) -> Any:
    if get_origin(annotation) not in (Union, types.UnionType):
        return None if _is_side_output(annotation) else annotation
    rest = [arg for arg in get_args(annotation) if not _is_side_output(arg)]
    return functools.reduce(lambda left, right: left | right, rest) if rest else None


def _is_side_output(annotation: Any) -> bool:
    args = get_args(annotation)
    return get_origin(annotation) is tuple and bool(args) and getattr(args[0], "__name__", "") == "OutputTag"


def type_of_value(value: Any) -> TypeInformation | None:
    """Return the type of one value, including the types of its fields.

    >>> type_of_value(("a", 1, [2.5]))
    TupleTypeInfo([Types.STRING(), Types.LONG(), ListTypeInfo(Types.DOUBLE())])
    >>> type_of_value(Row(station="KJFK", celsius=21.5))
    RowTypeInfo([Types.STRING(), Types.DOUBLE()], ('station', 'celsius'))
    """
    if value is None:
        return None
    if type(value) is datetime.datetime and not isinstance(value.tzinfo, datetime.timezone | None):
        return None  # only values without a declared type keep their zone in state
    if type(value) in _BASIC:
        return _BASIC[type(value)]()
    if isinstance(value, Row):
        return RowTypeInfo([_nested_value(item) for item in value], value.get_field_names())
    if type(value) is tuple:
        return TupleTypeInfo([_nested_value(item) for item in value])
    if type(value) is list:
        return ListTypeInfo(type_of_values(value) or PickledBytesTypeInfo())
    if type(value) is dict:
        keys, values = type_of_values(value.keys()), type_of_values(value.values())
        return MapTypeInfo(keys or PickledBytesTypeInfo(), values or PickledBytesTypeInfo())
    return ObjectTypeInfo(type(value))


def _nested_value(value: Any) -> TypeInformation:
    return type_of_value(value) or PickledBytesTypeInfo()


def type_of_values(values: Iterable[Any]) -> TypeInformation | None:
    """Return the common type of all values, or None if they differ or if no values exist.

    >>> type_of_values([("a", 1), ("b", 2)])
    TupleTypeInfo([Types.STRING(), Types.LONG()])
    >>> type_of_values([1, "a"])
    """
    found: TypeInformation | None = None
    for value in values:
        current = type_of_value(value)
        if current is None or (found is not None and current != found):
            return None
        found = current
    return found


def holds_objects(type_info: TypeInformation | None) -> bool:
    """Return whether values of the type are, or contain, objects of a user's class."""
    if isinstance(type_info, TupleTypeInfo):
        return any(map(holds_objects, type_info.get_field_types()))
    return isinstance(type_info, ObjectTypeInfo)
