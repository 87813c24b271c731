"""From the description of stored values back to a type that reads them.

A snapshot describes its values (`state.encoding.schema`), but the classes of the program are not here. A class with the same
fields does as well: descriptions hold names of fields, not of classes.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections import Counter, deque
from enum import Enum
from functools import reduce
from operator import or_
from typing import Any, Literal

import msgspec
import numpy as np
import pydantic

from penstock.common.errors import StateFormatUnsupported
from penstock.common.types import Row

_SIMPLE: dict[str, Any] = {
    "any": Any,
    "none": None,
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "bytes": bytes,
    "bytearray": bytearray,
    "datetime": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "timedelta": datetime.timedelta,
    "uuid": uuid.UUID,
    "decimal": decimal.Decimal,
}
_CUSTOM: dict[str, Any] = {"Row": Row, "deque": deque, "Counter": Counter, "ndarray": np.ndarray}


def annotation_of(schema: dict[str, Any]) -> Any:
    """An annotation whose values are stored as `schema` says.

    >>> annotation_of({"type": "dict", "key": {"type": "str"}, "value": {"type": "list", "of": {"type": "int"}}})
    dict[str, list[int]]

    Raises:
        StateFormatUnsupported: the description is of a type that contains itself, or of an unknown kind.
    """
    kind = schema["type"]
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    match kind:
        case "list":
            return list.__class_getitem__(annotation_of(schema["of"]))
        case "set":
            return set.__class_getitem__(annotation_of(schema["of"]))
        case "frozenset":
            return frozenset.__class_getitem__(annotation_of(schema["of"]))
        case "vartuple":
            return tuple.__class_getitem__((annotation_of(schema["of"]), ...))
        case "tuple":
            return tuple.__class_getitem__(tuple(annotation_of(item) for item in schema["of"]))
        case "dict":
            return dict.__class_getitem__((annotation_of(schema["key"]), annotation_of(schema["value"])))
        case "union":
            return reduce(or_, (annotation_of(member) for member in schema["of"]))
        case "literal":
            return Literal[tuple(schema["values"])]
        case "enum":
            return Enum("Stored", {f"value_{n}": value for n, value in enumerate(schema["values"])})
        case "record":
            return _record(schema)
        case "custom":
            return _custom(schema["name"])
    raise _unsupported(schema)


def _record(schema: dict[str, Any]) -> Any:
    fields = [(f["name"], annotation_of(f["schema"]), bool(f.get("optional"))) for f in schema["fields"]]
    if schema["layout"] == "model":
        model: dict[str, Any] = {name: (type_, None if optional else ...) for name, type_, optional in fields}
        return pydantic.create_model(schema["name"], **model)
    names = [f"field_{n}" for n in range(len(fields))]
    return msgspec.defstruct(
        schema["name"],
        [
            (inner, type_, msgspec.field(default=None)) if optional else (inner, type_)
            for inner, (_, type_, optional) in zip(names, fields, strict=True)
        ],
        rename=dict(zip(names, (name for name, _, _ in fields), strict=True)),
        array_like=schema["layout"] == "array",
        tag=schema.get("tag"),
        kw_only=True,
    )


def _custom(name: str) -> Any:
    short = name.rpartition(".")[2]
    found = _CUSTOM.get(short) or getattr(np, short, None)
    if not isinstance(found, type):
        raise _unsupported({"type": "custom", "name": name})
    return found


def _unsupported(schema: dict[str, Any]) -> StateFormatUnsupported:
    return StateFormatUnsupported(
        f"values described as {schema} cannot be shown", remedy="read them in a job of your own that knows the class"
    )
