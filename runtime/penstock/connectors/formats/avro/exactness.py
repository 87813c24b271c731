"""Checks for values that fastavro would change: 1.5 to the long 1, 2**40 to an int, "no" to true, 1e300 to an infinite float.

fastavro itself checks text, bytes, enumerations and unions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np

Check = Callable[[Any], None]
_INT = 1 << 31
_LARGEST_FLOAT = float(np.finfo(np.float32).max)
_BROKEN = (float, Decimal, np.floating)
_TEXT = (str, bytes, bytearray)


def check_of(schema: Any) -> Check | None:
    """Return a function that raises ValueError for a value that fastavro would change, or None if fastavro changes no value of this schema.

    `schema` is a parsed schema.

    >>> check = check_of({"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]})
    >>> check({"id": 1.5})
    Traceback (most recent call last):
    ValueError: 1.5 (float) is not a valid long on field id
    """
    return _Checks().of(schema)


class _Checks:
    """The checks of one schema. A schema can refer to a record's type by its name, even within the type itself."""

    def __init__(self) -> None:
        self._named: dict[str, Check] = {}

    def of(self, schema: Any) -> Check | None:
        if isinstance(schema, list):
            return None  # fastavro finds the type that fits
        inner = schema if isinstance(schema, dict) else {}
        kind = inner.get("type", schema)
        if isinstance(kind, dict | list):
            return self.of(kind)
        if kind == "record":
            return self._record(inner)
        if kind == "array" and (item := self.of(inner["items"])) is not None:
            return lambda value: _each(item, value)
        if kind == "map" and (value_of := self.of(inner["values"])) is not None:
            return lambda value: _each(value_of, value.values())
        return _CHECKS.get(kind) or self._named.get(kind)

    def _record(self, schema: dict[str, Any]) -> Check:
        parts: list[tuple[str, Check, bool]] = []

        def check(value: Any) -> None:
            if not isinstance(value, Mapping):
                return  # fastavro reports it
            for name, of_field, has_default in parts:
                try:
                    found = value[name]
                except KeyError:
                    if has_default:
                        continue
                    raise ValueError(f"the record has no field {name}") from None
                try:
                    of_field(found)
                except ValueError as error:
                    raise ValueError(f"{error} on field {name}") from None

        self._named[schema["name"]] = check
        for field in schema["fields"]:
            of_field = self.of(field["type"])
            if of_field is not None:
                parts.append((field["name"], of_field, "default" in field))
        return check


def _each(check: Check, values: Any) -> None:
    for value in values:
        check(value)


def _refuse(value: Any, kind: str) -> None:
    shown = repr(value)
    raise ValueError(
        f"{shown if len(shown) <= 100 else shown[:100] + '…'} ({type(value).__name__}) is not a valid {kind}"
    )


def _long(value: Any) -> None:
    if type(value) is not int and isinstance(value, _BROKEN):
        _refuse(value, "long")


def _int(value: Any) -> None:
    if isinstance(value, _BROKEN) or (isinstance(value, int | np.integer) and not -_INT <= value < _INT):
        _refuse(value, "int")


def _float(value: Any) -> None:
    if isinstance(value, _TEXT) or (math.isfinite(value) and abs(value) > _LARGEST_FLOAT):
        _refuse(value, "float")


def _double(value: Any) -> None:
    if type(value) is not float and isinstance(value, _TEXT):
        _refuse(value, "double")


def _boolean(value: Any) -> None:
    if not isinstance(value, bool | np.bool_):
        _refuse(value, "boolean")


def _null(value: Any) -> None:
    if value is not None:
        _refuse(value, "null")


_CHECKS: dict[Any, Check] = {
    "long": _long,
    "int": _int,
    "float": _float,
    "double": _double,
    "boolean": _boolean,
    "null": _null,
}
