"""Avro schemas, and the conversion of their records from and to dicts, Rows and objects."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from penstock.common.errors import InvalidJob
from penstock.common.program.extras import import_extra
from penstock.common.type_info.declared_fields import declared_names
from penstock.common.type_info.type_inference import to_type_info
from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.common.types import Row

Convert = Callable[[Any], Any]
_TYPES: dict[str, Callable[[], TypeInformation]] = {
    "string": Types.STRING,
    "enum": Types.STRING,
    "int": Types.INT,
    "long": Types.LONG,
    "float": Types.FLOAT,
    "double": Types.DOUBLE,
    "boolean": Types.BOOLEAN,
}


def fastavro(module: str = "fastavro") -> Any:
    """Return a module of fastavro.

    Raises:
        InvalidJob: the package is not installed.
    """
    return import_extra(module, "avro", "Avro")


class AvroSchema:
    """A schema, given as JSON text (PyFlink's name). Two schemas are equal if their canonical forms are equal.

    >>> schema = AvroSchema.parse_string('{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}')
    >>> schema.names
    ('id',)

    Raises:
        InvalidJob: the text is not an Avro schema.
    """

    def __init__(self, text: str) -> None:
        avro = fastavro()
        self.text = text
        try:
            self.parsed = avro.parse_schema(json.loads(text))
            self._canonical = avro.schema.to_parsing_canonical_form(json.loads(text))
        except Exception as error:  # fastavro raises many kinds of errors
            raise InvalidJob(
                f"the text is not an Avro schema: {error}: {text[:200]!r}", remedy="give a schema as JSON text"
            ) from error

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        return AvroSchema(json_schema)

    @staticmethod
    def parse_file(file_path: str) -> AvroSchema:
        try:
            return AvroSchema(Path(file_path).read_text())
        except OSError as error:
            raise InvalidJob(f"{file_path!r} cannot be read: {error.strerror}", remedy="correct the path") from error

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the record's fields.

        Raises:
            InvalidJob: the schema is not a record.
        """
        if not isinstance(self.parsed, dict) or self.parsed.get("type") != "record":
            raise InvalidJob(
                f"the Avro schema is not a record: {self.text[:200]!r}", remedy="give a schema of a record"
            )
        return tuple(field["name"] for field in self.parsed["fields"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroSchema) and other._canonical == self._canonical

    def __hash__(self) -> int:
        return hash(self._canonical)

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroSchema, (self.text,)

    def __repr__(self) -> str:
        return f"AvroSchema({self.text!r})"


def row_type(schema: AvroSchema) -> RowTypeInfo:
    """Return the type of Rows for the records of this schema.

    >>> schema = AvroSchema('{"type": "record", "name": "R", "fields": [{"name": "id", "type": ["null", "long"]}]}')
    >>> row_type(schema)
    RowTypeInfo([Types.LONG()], ('id',))
    """
    assert schema.names
    found = _type_of(schema.parsed)
    assert isinstance(found, RowTypeInfo)
    return found


def _type_of(schema: Any) -> TypeInformation:
    kind, inner = _kind(schema)
    if kind == "record":
        fields = inner["fields"]
        return RowTypeInfo([_type_of(field["type"]) for field in fields], [field["name"] for field in fields])
    if kind == "array":
        return Types.LIST(_type_of(inner["items"]))
    if kind == "map":
        return Types.MAP(Types.STRING(), _type_of(inner["values"]))
    if isinstance(inner, dict) and "logicalType" in inner:
        kind = ""
    make = _TYPES.get(kind)
    return (
        make() if make is not None else (to_type_info(bytes) if kind == "bytes" else None) or Types.PICKLED_BYTE_ARRAY()
    )


def is_recursive(schema: Any, within: frozenset[str] = frozenset()) -> bool:
    """Return whether a record of this (parsed) schema can contain a record of the same type, at any depth.

    >>> is_recursive({"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]})
    True
    """
    if isinstance(schema, list):
        return any(is_recursive(one, within) for one in schema)
    if not isinstance(schema, dict):
        return schema in within
    within = within | {schema.get("name", "")}
    parts = [schema[part] for part in ("type", "items", "values") if part in schema]
    return any(is_recursive(part, within) for part in [*parts, *(field["type"] for field in schema.get("fields", ()))])


def _kind(schema: Any) -> tuple[str, Any]:
    """Return the name of the type and its definition. An optional type (a union with null) counts as the type itself."""
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        return _kind(others[0]) if len(others) == 1 else ("union", schema)
    if isinstance(schema, dict):
        return (schema["type"], schema) if isinstance(schema["type"], str) else _kind(schema["type"])
    return schema, schema


def to_rows(schema: Any) -> Convert | None:
    """Return a function that converts the dicts in a value of this (parsed) schema to Rows, or None if values contain no records."""
    return _ToRows().of(schema)


def to_dicts(schema: Any) -> Convert | None:
    """Return a function that converts the Rows and objects in a value of this (parsed) schema to dicts."""
    return _ToDicts().of(schema)


class Conversion(ABC):
    """A builder of functions that convert the records in values.

    A schema can refer to a record's type by its name, even within the type itself.
    """

    def __init__(self) -> None:
        self._named: dict[str, Convert] = {}

    def of(self, schema: Any) -> Convert | None:
        kind, inner = _kind(schema)
        if kind == "record":
            converters: list[Convert] = []
            self._named[inner["name"]] = lambda value: converters[0](value)
            convert = self.record(inner["fields"])
            converters.append(convert or _as_it_is)
            return convert
        if kind == "array" and (of_item := self.of(inner["items"])) is not None:
            return lambda value: None if value is None else list(map(of_item, value))
        if kind == "map" and (of_value := self.of(inner["values"])) is not None:
            return lambda value: None if value is None else {key: of_value(item) for key, item in value.items()}
        return self._named.get(kind)

    @abstractmethod
    def record(self, fields: list[dict[str, Any]]) -> Convert | None:
        """Return the function that converts a record with these fields, or None if records stay unchanged."""


def _as_it_is(value: Any) -> Any:
    return value


class _ToRows(Conversion):
    def record(self, fields: list[dict[str, Any]]) -> Convert:
        parts = [(field["name"], self.of(field["type"])) for field in fields]
        names = [name for name, _ in parts]
        make = Row.maker(names)
        if not any(convert for _, convert in parts):
            # By name, because fastavro returns the fields in the writer's order.
            return lambda value: None if value is None else make(map(value.__getitem__, names))

        def row(value: Any) -> Any:
            if value is None:
                return None
            return make([value[name] if convert is None else convert(value[name]) for name, convert in parts])

        return row


class _ToDicts(Conversion):
    def of(self, schema: Any) -> Convert | None:
        """Return the conversion of a type. In addition to records, the conversion covers these values:

        - Sequences of any kind become lists.
        - numpy's booleans in a union become Python's, because fastavro does not recognize numpy's there.
        - Integers of more than 32 bits in an int are an error. fastavro would write them, but other readers refuse them.
        """
        kind, inner = _kind(schema)
        if isinstance(schema, list) and kind == "boolean":
            return _plain_boolean
        if kind == "int" and not isinstance(schema, list) and "logicalType" not in inner:
            return _in_32_bits
        convert = super().of(schema)
        if kind == "array":
            return _as_list if convert is None else lambda value: convert(_as_list(value))
        return convert

    def record(self, fields: list[dict[str, Any]]) -> Convert:
        parts = [(field["name"], self.of(field["type"]), "default" in field) for field in fields]
        known = {name for name, _, _ in parts}
        integers = [name for name, convert, _ in parts if convert is _in_32_bits]
        is_flat = all(convert in (None, _in_32_bits) for _, convert, _ in parts)

        def plain(value: Any) -> Any:
            if value is None:
                return value
            if is_flat and type(value) is dict:
                for name in integers:
                    if name in value:
                        _in_32_bits(value[name])
                return value
            get = _getter(value)
            found = {}
            for name, convert, has_default in parts:
                try:
                    item = get(name)
                except (KeyError, AttributeError, InvalidJob):
                    if has_default:
                        continue
                    raise
                found[name] = item if convert is None else convert(item)
            given = value if isinstance(value, Mapping) else declared_names(value) or ()
            if strange := [name for name in given if name not in known]:
                raise ValueError(f"the schema has no field {', '.join(map(repr, strange))}")
            return found

        return plain


def _in_32_bits(value: Any) -> Any:
    if not -(1 << 31) <= value < 1 << 31:
        raise ValueError(f"{value} has more than the 32 bits of an int")
    return value


def _as_list(value: Any) -> Any:
    """Return a sequence as a list. fastavro would read a tuple as the name of a type and a value."""
    if value is None or type(value) is list:
        return value
    if isinstance(value, str | bytes | Mapping):
        raise TypeError(f"{value!r} is not an array")
    return value.tolist() if isinstance(value, np.ndarray) else list(value)


def _plain_boolean(value: Any) -> Any:
    return bool(value) if isinstance(value, np.bool_) else value


def _getter(value: Any) -> Convert:
    if isinstance(value, Mapping | Row):
        return value.__getitem__
    return lambda name: getattr(value, name)
