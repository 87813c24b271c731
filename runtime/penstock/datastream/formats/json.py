"""JSON: rows in messages, and lines of files.

For files, use `JsonLinesFormat` in a FileSource, and `JsonLinesEncoder` in a FileSink. For messages, use the schemas with PyFlink's names.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.common.serialization import SerializationSchema
from penstock.common.type_info.type_inference import to_type_info
from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.connectors.formats.encode import JsonLinesEncoder
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.connectors.formats.json_messages import RegistryJsonMessages, RegistryJsonWriter
from penstock.connectors.formats.record_format import MalformedBlock
from penstock.connectors.formats.registry import SchemaRegistry
from penstock.datastream.formats.row_messages import RowMessages

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ConfluentRegistryJsonDeserializationSchema",
    "ConfluentRegistryJsonSerializationSchema",
    "JsonLinesEncoder",
    "JsonLinesFormat",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
    "SchemaRegistry",
]


class ConfluentRegistryJsonDeserializationSchema(RegistryJsonMessages):
    """Deserialization schema for messages that contain a schema id, followed by JSON. It returns records of any
    form."""


class ConfluentRegistryJsonSerializationSchema(RegistryJsonWriter):
    """Serialization schema that writes records as JSON after the schema id."""


class JsonRowDeserializationSchema(RowMessages):
    """Deserialization schema that converts JSON objects to Rows.

    >>> schema = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["id"], [Types.STRING()])).build()
    >>> schema.deserialize(b'{"id": "a"}')
    Row(id='a')
    """

    def __init__(self, row_type: RowTypeInfo, *, fail_on_missing_field: bool, ignore_parse_errors: bool) -> None:
        decode = JsonLinesFormat(row_type).decoder(b"")
        super().__init__(
            "JSON", row_type, decode, ignore_parse_errors=ignore_parse_errors, one_by_one=fail_on_missing_field
        )
        self._fail_on_missing_field = fail_on_missing_field

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        return JsonRowDeserializationSchema.Builder()

    def _row(self, message: bytes) -> Any:
        data = message.replace(b"\n", b" ")
        rows = self._decode(data).rows().values
        if len(rows) != 1:
            raise MalformedBlock("the message is not exactly one JSON value")
        if self._fail_on_missing_field:
            missing = set(self._row_type.get_field_names()) - set(json.loads(data))
            if missing:
                raise MalformedBlock(f"no field {', '.join(map(repr, sorted(missing)))}")
        return rows[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return _json_schema, (self._row_type, self._fail_on_missing_field, self._ignore_parse_errors)

    class Builder:
        """Builder that takes the fields from `type_info` or from `json_schema`."""

        def __init__(self) -> None:
            self._type_info: RowTypeInfo | None = None
            self._fail_on_missing_field = False
            self._ignore_parse_errors = False

        def type_info(self, type_info: Any) -> JsonRowDeserializationSchema.Builder:
            found = to_type_info(type_info)
            if not isinstance(found, RowTypeInfo):
                raise InvalidJob(f"{type_info!r} is not a row type", remedy="pass Types.ROW_NAMED(names, types)")
            self._type_info = found
            return self

        def json_schema(self, json_schema: str) -> JsonRowDeserializationSchema.Builder:
            """Set the fields by a JSON schema of an object.

            Raises:
                InvalidJob: the text is not a JSON schema of an object, or the schema has types that a Row cannot have.
            """
            try:
                found = _row_type_of(json.loads(json_schema))
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidJob(
                    f"not a JSON schema of an object: {error}: {json_schema[:200]!r}",
                    remedy='pass a schema with "type": "object" and "properties"',
                ) from error
            return self.type_info(found)

        def fail_on_missing_field(self) -> JsonRowDeserializationSchema.Builder:
            """Treat a message as malformed if one of the fields is missing. By default a missing field is None."""
            self._fail_on_missing_field = True
            return self

        def ignore_parse_errors(self) -> JsonRowDeserializationSchema.Builder:
            """Skip malformed messages and log a warning."""
            self._ignore_parse_errors = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            if self._type_info is None:
                raise InvalidJob(
                    "the schema of JSON messages has no fields", remedy="call type_info(...) or json_schema(...)"
                )
            if self._fail_on_missing_field and self._ignore_parse_errors:
                raise InvalidJob(
                    "fail_on_missing_field and ignore_parse_errors exclude each other", remedy="call one of them"
                )
            return _json_schema(self._type_info, self._fail_on_missing_field, self._ignore_parse_errors)


def _json_schema(row_type: RowTypeInfo, fail: bool, ignore: bool) -> JsonRowDeserializationSchema:
    return JsonRowDeserializationSchema(row_type, fail_on_missing_field=fail, ignore_parse_errors=ignore)


def _row_type_of(schema: dict[str, Any]) -> RowTypeInfo:
    fields = schema["properties"]
    return RowTypeInfo([_type_of(kind) for kind in fields.values()], list(fields))


def _type_of(schema: dict[str, Any]) -> TypeInformation:
    kind = schema["type"]
    if isinstance(kind, list):
        kind = next(one for one in kind if one != "null")
    if kind == "object":
        return _row_type_of(schema)
    if kind == "array":
        return Types.LIST(_type_of(schema["items"]))
    return {
        "string": Types.STRING,
        "integer": Types.LONG,
        "number": Types.DOUBLE,
        "boolean": Types.BOOLEAN,
    }[kind]()


class JsonRowSerializationSchema(SerializationSchema):
    """Serialization schema that converts Rows to JSON objects.

    >>> from penstock.common.types import Row
    >>> schema = JsonRowSerializationSchema.builder().with_type_info(Types.ROW_NAMED(["id"], [Types.STRING()])).build()
    >>> schema.serialize(Row("a"))
    b'{"id":"a"}'
    """

    def __init__(self, row_type: RowTypeInfo) -> None:
        self._row_type = row_type
        self._encoder = JsonLinesEncoder(row_type.get_field_names())

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        return JsonRowSerializationSchema.Builder()

    def serialize(self, element: Any) -> bytes:
        return self._encoder.encode(self._row_type.convert(element)).rstrip(b"\n")

    def serialize_batch(self, elements: Sequence[Any]) -> list[bytes]:
        lines = self._encoder.encode_batch(list(map(self._row_type.convert, elements))).split(b"\n")
        return lines[:-1]

    class Builder:
        def __init__(self) -> None:
            self._type_info: RowTypeInfo | None = None

        def with_type_info(self, type_info: Any) -> JsonRowSerializationSchema.Builder:
            found = to_type_info(type_info)
            if not isinstance(found, RowTypeInfo):
                raise InvalidJob(f"{type_info!r} is not a row type", remedy="pass Types.ROW_NAMED(names, types)")
            self._type_info = found
            return self

        def build(self) -> JsonRowSerializationSchema:
            if self._type_info is None:
                raise InvalidJob("the schema of JSON messages has no fields", remedy="call with_type_info(...)")
            return JsonRowSerializationSchema(self._type_info)
