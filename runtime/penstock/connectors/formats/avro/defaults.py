"""Defaults of fields that the writer's schema does not have, converted to the types of values in records.

fastavro puts the default's JSON value from the reader's schema into each record. All records then share one list or dict. The default
of a bytes field is text, and the default of a time is a number. This module replaces such defaults by values of the field's type. Each record gets
its own copy of a value that can be modified.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from penstock.connectors.formats.avro.schema import Conversion, Convert, fastavro

_AS_IN_JSON = ("null", "boolean", "int", "long", "string", "enum")
_MUTABLE = ("record", "error", "array", "map")


def own_defaults(schema: Any) -> Convert | None:
    """Return a function that corrects the defaults in records of this (parsed) reader's schema, in place.

    Return None if no default needs a correction.
    """
    return _Defaults().of(schema)


class _Defaults(Conversion):
    def __init__(self) -> None:
        super().__init__()
        self._schemas: dict[str, Any] = {}

    def of(self, schema: Any) -> Convert | None:
        if isinstance(schema, dict) and "name" in schema:
            self._schemas[schema["name"]] = schema
        return super().of(schema)

    def record(self, fields: list[dict[str, Any]]) -> Convert | None:
        parts = []
        for field in fields:
            convert = self.of(field["type"])
            make = self._maker(field) if "default" in field else None
            if make is not None or convert is not None:
                parts.append((field["name"], field.get("default"), make, convert))
        if not parts:
            return None

        def mend(value: Any) -> Any:
            if type(value) is dict:
                for name, default, make, convert in parts:
                    item = value.get(name)
                    if make is not None and type(item) is type(default) and item == default:
                        value[name] = make()
                    elif convert is not None:
                        convert(item)
            return value

        return mend

    def _maker(self, field: dict[str, Any]) -> Callable[[], Any] | None:
        """Return the function that creates a field's default, or None if the JSON value is already correct."""
        kind = self._first(field["type"])
        logical = isinstance(kind, dict) and "logicalType" in kind
        name = kind if isinstance(kind, str) else kind["type"]
        if name in _AS_IN_JSON and not logical:
            return None
        value = self._value(field["type"], field["default"])
        if name in _MUTABLE:
            return lambda: copy.deepcopy(value)
        return lambda: value

    def _first(self, schema: Any) -> Any:
        """Return the type of a default. The default of a union has the union's first type."""
        while isinstance(schema, list) or (isinstance(schema, dict) and not isinstance(schema["type"], str)):
            schema = schema[0] if isinstance(schema, list) else schema["type"]
        return self._schemas.get(schema, schema) if isinstance(schema, str) else schema

    def _value(self, schema: Any, default: Any) -> Any:
        kind = self._first(schema)
        name = kind if isinstance(kind, str) else kind["type"]
        if name in ("record", "error"):
            given = default or {}
            return {
                field["name"]: self._value(field["type"], given.get(field["name"], field.get("default")))
                for field in kind["fields"]
            }
        if name == "array":
            return [self._value(kind["items"], one) for one in default]
        if name == "map":
            return {key: self._value(kind["values"], one) for key, one in default.items()}
        if name in ("bytes", "fixed"):
            default = default.encode("latin-1")
        elif name in ("float", "double"):
            default = float(default)
        logical = f"{name}-{kind.get('logicalType')}" if isinstance(kind, dict) else ""
        read = fastavro("fastavro.read").LOGICAL_READERS.get(logical)
        return default if read is None else read(default, kind, kind)
