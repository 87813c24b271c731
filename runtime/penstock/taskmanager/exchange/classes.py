"""Records of a single class as plain tuples of their fields, for classes whose objects consist of their fields only.

pickle writes an object as a call with its state. If only the program knows the class (a class of the script), pickle
calls into Python for each object. It costs at most a quarter of this to send the class once, followed by tuples of
fields. This module only handles classes for which pickle has the same result: no attributes other than the fields, and
no pickle methods in the class.
"""

from __future__ import annotations

import copyreg
import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import lru_cache, partial
from itertools import starmap
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

Rows = list[tuple[Any, ...]]


class _Bare:
    """An empty class, to compare sizes with."""


class FieldForm(NamedTuple):
    """The conversions of a class.

    `take` returns the fields of objects, or None if an object has other attributes. `make` creates objects.
    """

    take: Callable[[list[Any]], Rows | None]
    make: Callable[[Rows], list[Any]]


@lru_cache(256)
def field_form(cls: Any) -> FieldForm | None:
    """Return the conversions between objects and tuples, or None if objects of the class have more than their fields."""
    if cls in copyreg.dispatch_table:
        return None
    if issubclass(cls, tuple):
        return _tuple_form(cls) if cls.__dictoffset__ == 0 and _is_pickled_by_default(cls) else None
    if isinstance(cls, type(msgspec.Struct)):
        return _struct_form(cls) if _is_made_by_position(cls) else None
    if is_dataclass(cls) and _is_bare(cls) and _is_pickled_by_default(cls):
        return _dataclass_form(cls)
    return None


def _is_pickled_by_default(cls: Any) -> bool:
    return (
        cls.__reduce_ex__ is object.__reduce_ex__
        and cls.__reduce__ is object.__reduce__
        and cls.__getstate__ is object.__getstate__
        and not any(hasattr(cls, name) for name in ("__setstate__", "__getnewargs_ex__"))
        and (issubclass(cls, tuple) or not hasattr(cls, "__getnewargs__"))
    )


def _tuple_form(cls: type) -> FieldForm:
    return FieldForm(lambda values: list(map(tuple, values)), lambda rows: list(map(partial(tuple.__new__, cls), rows)))


def _is_made_by_position(cls: Any) -> bool:
    """Return whether pickle creates the Struct from positional arguments only: no keywords, no attributes other than the fields."""
    struct: Any = msgspec.Struct
    if cls.__dictoffset__ or cls.__reduce__ is not struct.__reduce__ or not cls.__struct_fields__:
        return False
    if cls.__reduce_ex__ is not object.__reduce_ex__ or hasattr(cls, "__setstate__"):
        return False
    parameters = inspect.signature(cls).parameters
    by_position = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters.values())
    return by_position and tuple(parameters) == cls.__struct_fields__


def _struct_form(cls: Any) -> FieldForm:
    return FieldForm(lambda values: list(map(msgspec.structs.astuple, values)), lambda rows: list(starmap(cls, rows)))


def _is_bare(cls: Any) -> bool:
    """Return whether the objects have a dictionary of attributes and nothing else."""
    return bool(cls.__basicsize__ == _Bare.__basicsize__ and cls.__dictoffset__ == _Bare.__dictoffset__)


def _dataclass_form(cls: Any) -> FieldForm | None:
    names = tuple(field.name for field in fields(cls))
    if not names:
        return None
    get: Callable[[Any], Any] = itemgetter(*names)
    size = len(names)

    def take(values: list[Any]) -> Rows | None:
        attributes = list(map(vars, values))
        if not {size}.issuperset(map(len, attributes)):
            return None
        try:
            found: Iterable[Any] = map(get, attributes)
            return list(found) if size > 1 else [(value,) for value in found]
        except KeyError:
            return None

    def make(rows: Rows) -> list[Any]:
        new = cls.__new__
        objects: list[Any] = []
        append = objects.append
        for row in rows:
            value = new(cls)
            value.__dict__.update(zip(names, row, strict=True))
            append(value)
        return objects

    return FieldForm(take, make)
