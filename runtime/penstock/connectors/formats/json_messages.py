"""JSON in messages with the head of Confluent's registry: a zero byte, the id of a JSON schema, the value.

JSON needs no schema to be read. So a reader removes the head and checks values against its own fields. A writer registers its
schema or looks it up. The registry's rules apply to the schema, and single records are not checked against it. Confluent's
serializer works in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from penstock.common.errors import InvalidJob, PlatformError, RecordFormatError
from penstock.common.serialization import SerializationSchema
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.formats.encode import JsonLinesEncoder
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.connectors.formats.message_format import DecodeMessages, MessageFormat, of_lines
from penstock.connectors.formats.record_format import MalformedBlock
from penstock.connectors.formats.registry import HEAD, RegisteredSchema, SchemaAbsent, SchemaRegistry, id_of
from penstock.connectors.formats.shape import Declaration

KIND = "JSON"
_SHOWN = 200


class RegistryJsonMessages(MessageFormat):
    """A format of JSON messages with a registry's head.

    Args:
        fields: the record type, as in `JsonLinesFormat`.
        record: another form for the same fields.
        registry: the registry's URL, or a `SchemaRegistry`. A message is refused if its id is not the id of a JSON schema. None means that
            ids are not checked.
    """

    def __init__(
        self, fields: Declaration = None, *, record: str | None = None, registry: str | SchemaRegistry | None = None
    ) -> None:
        self._format = JsonLinesFormat(fields, record=record)
        self._registry = None if registry is None else SchemaRegistry.of(registry)
        self._decode: DecodeMessages | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_decode": None}

    def deserialize(self, message: bytes) -> Any:
        if self._decode is None:
            self._decode = self.batch_decoder()
        try:
            return self._decode([bytes(message)]).rows().values[0]
        except PlatformError:
            raise
        except Exception as error:
            raise RecordFormatError(
                f"malformed JSON message: {error}: {bytes(message)[:_SHOWN]!r}",
                remedy="check that it was written with a registry and has the declared fields",
            ) from error

    def batch_decoder(self) -> DecodeMessages:
        decode = of_lines(self._format)
        known: set[int] = set()
        """Ids of JSON schemas."""

        def value(message: bytes) -> bytes:
            id = id_of(message)
            if self._registry is not None and id not in known:
                try:
                    self._registry.schema(id, KIND)
                except SchemaAbsent as error:
                    raise MalformedBlock(error.message) from error
                known.add(id)
            return message[HEAD.size :]

        return lambda messages: decode(list(map(value, messages)))

    def validate(self) -> None:
        if self._registry is not None:
            self._registry.ping()

    def get_produced_type(self) -> TypeInformation | None:
        found: TypeInformation | None = self._format.produced_type()
        return found


class RegistryJsonWriter(SerializationSchema):
    """A writer of JSON messages with a registry's head.

    Args:
        subject: the subject of the schema in the registry; the convention is `TOPIC-value`.
        schema: a JSON schema, as text.
        registry: the registry's URL, or a `SchemaRegistry`.
        fields: names for the fields of tuples, as in `JsonLinesEncoder`.

    Raises:
        InvalidJob: the schema is not JSON.
    """

    def __init__(
        self, subject: str, schema: str, registry: str | SchemaRegistry, *, fields: Sequence[str] | None = None
    ) -> None:
        try:
            json.loads(schema)
        except ValueError as error:
            raise InvalidJob(
                f"the text is not a JSON schema: {error}: {schema[:_SHOWN]!r}", remedy="give the schema as JSON text"
            ) from error
        self._subject = subject
        self._schema = RegisteredSchema(KIND, schema)
        self._registry = SchemaRegistry.of(registry)
        self._encoder = JsonLinesEncoder(fields)
        self._head: bytes | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_head": None}

    def serialize(self, element: Any) -> bytes:
        return self._written(self._encoder.encode(element).removesuffix(b"\n"))

    def serialize_batch(self, elements: Sequence[Any]) -> list[bytes]:
        lines = self._encoder.encode_batch(elements).split(b"\n")[:-1]
        return list(map(self._written, lines)) if len(lines) == len(elements) else list(map(self.serialize, elements))

    def _written(self, line: bytes) -> bytes:
        if self._head is None:
            self._head = HEAD.pack(0, self._registry.register(self._subject, self._schema))
        return self._head + line

    def validate(self) -> None:
        self._registry.check(self._subject, self._schema)
