"""Whether a value that no schema describes has the shape that the code which reads it relies on. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock_operator.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True)
class Shape:
    """What a value must be, in words and as a type, and what must be in it."""

    words: str
    kind: type
    inner: Shape | None = None
    """Of every entry of a list or an object."""
    fields: Mapping[str, Shape] = field(default_factory=dict)
    """Of single fields of an object; those that are absent or null are as they must be."""


STRING = Shape("a string", str)
OBJECT = Shape("an object", dict)
OBJECTS = Shape("a list of objects", list, OBJECT)
STRINGS = Shape("a list of strings", list, STRING)
TEXTS = Shape("an object of strings", dict, STRING)


def of_fields(fields: Mapping[str, Shape]) -> Shape:
    """An object with these fields among others."""
    return Shape("an object", dict, fields=fields)


def list_of(fields: Mapping[str, Shape]) -> Shape:
    """A list of objects with these fields among others."""
    return Shape("a list of objects", list, of_fields(fields))


def misshapen(value: object, shape: Shape, path: str) -> Iterator[Problem]:
    """Whatever in a value is not what it must be, with the path of the field.

    >>> [str(p) for p in misshapen({"labels": {"a": 1}}, of_fields({"labels": TEXTS}), "metadata")]
    ['metadata.labels.a: it must be a string, not a number. Put it in quotes.']
    """
    if not isinstance(value, shape.kind):
        scalar = shape is STRING and isinstance(value, int | float)
        remedy = "Put it in quotes." if scalar else "Write it as kubectl explain pod has it."
        yield Problem(path, f"it must be {shape.words}, not {_called(value)}", remedy)
    elif isinstance(value, dict):
        for key, entry in value.items():
            inner = shape.inner or shape.fields.get(key)
            if inner is not None and (entry is not None or shape.inner is not None):
                yield from misshapen(entry, inner, f"{path}.{key}")
    elif isinstance(value, list) and shape.inner is not None:
        for i, entry in enumerate(value):
            yield from misshapen(entry, shape.inner, f"{path}[{i}]")


def _called(value: object) -> str:
    """The type of a value, as people who write manifests call it."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
