"""Checks whether values without a schema have the structure that the code expects. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock_operator.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True)
class Shape:
    """The expected type of a value and of the values inside it, with its description for messages."""

    words: str
    kind: type
    inner: Shape | None = None
    """Shape of every entry of a list or an object."""
    fields: Mapping[str, Shape] = field(default_factory=dict)
    """Shapes of single fields of an object. An absent or null field always passes."""


STRING = Shape("a string", str)
OBJECT = Shape("an object", dict)
OBJECTS = Shape("a list of objects", list, OBJECT)
STRINGS = Shape("a list of strings", list, STRING)
TEXTS = Shape("an object of strings", dict, STRING)


def of_fields(fields: Mapping[str, Shape]) -> Shape:
    """Return the shape of an object that has these fields. The object may also have other fields."""
    return Shape("an object", dict, fields=fields)


def list_of(fields: Mapping[str, Shape]) -> Shape:
    """Return the shape of a list of objects that have these fields. The objects may also have other fields."""
    return Shape("a list of objects", list, of_fields(fields))


def shape_problems(value: object, shape: Shape, path: str) -> Iterator[Problem]:
    """Yield a problem with the field's path for each value that does not have its expected shape.

    >>> [str(p) for p in shape_problems({"labels": {"a": 1}}, of_fields({"labels": TEXTS}), "metadata")]
    ['metadata.labels.a: it must be a string, not a number. Put it in quotes.']
    """
    if not isinstance(value, shape.kind):
        scalar = shape is STRING and isinstance(value, int | float)
        remedy = "Put it in quotes." if scalar else "Use the type that kubectl explain pod shows."
        yield Problem(path, f"it must be {shape.words}, not {_type_name(value)}", remedy)
    elif isinstance(value, dict):
        for key, entry in value.items():
            inner = shape.inner or shape.fields.get(key)
            if inner is not None and (entry is not None or shape.inner is not None):
                yield from shape_problems(entry, inner, f"{path}.{key}")
    elif isinstance(value, list) and shape.inner is not None:
        for i, entry in enumerate(value):
            yield from shape_problems(entry, shape.inner, f"{path}[{i}]")


def _type_name(value: object) -> str:
    """Return the name of the value's type in the words of YAML and JSON."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
