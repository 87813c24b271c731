"""Codecs that store values in another format. A schema defines Avro values, and a generated class defines Protobuf values.

In a column, each value is a msgpack byte string, so code that moves encoded values need not know the formats. Each format defines how old
values are read. Avro uses the schemas of the writer and of the reader. Protobuf uses field numbers.
"""

from __future__ import annotations

import copy
import io
import json
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.msgpack import Decoder, Encoder

from penstock.common.errors import StateTypeError
from penstock.common.program.extras import import_extra
from penstock.state.encoding.codec import NATIVE, Codec, join_column
from penstock.state.encoding.messages.protobuf_evolution import describe_message
from penstock.state.encoding.tagged import type_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.state.encoding.schema import Schema

_encode = Encoder().encode
_decode = Decoder(bytes | None).decode
_decode_list = Decoder(list[bytes | None]).decode


class MessageCodec(Codec):
    """Base of both codecs. The value None is stored as msgpack's nil, without the format."""

    @abstractmethod
    def to_bytes(self, value: Any) -> bytes:
        """Convert a value to bytes of the format.

        Raises:
            StateTypeError: the value does not fit the schema or the class.
        """

    @abstractmethod
    def from_bytes(self, data: bytes) -> Any: ...

    def encode(self, value: Any) -> bytes:
        return _encode(None if value is None else self.to_bytes(value))

    def decode(self, data: bytes | memoryview) -> Any:
        content = _decode(data)
        return None if content is None else self.from_bytes(content)

    def freeze(self, values: list[Any]) -> list[Any]:
        return [Raw(self.encode(value)) for value in values]

    def encode_column(self, frozen: Sequence[Any]) -> tuple[int, bytes]:
        if all(type(value) is Raw for value in frozen):
            return NATIVE, _encode(frozen)
        return join_column([bytes(value) if type(value) is Raw else self.encode(value) for value in frozen])

    def decode_column(self, code: int, data: bytes | memoryview) -> list[Any]:
        return [None if content is None else self.from_bytes(content) for content in _decode_list(data)]


class AvroCodec(MessageCodec):
    """The codec of an Avro schema.

    Args:
        schema: JSON text.
        writer: schema of the stored values if it differs from `schema`.
    """

    def __init__(self, schema: str, state: str, operator: str, *, writer: str | None = None) -> None:
        super().__init__(state, operator)
        avro = import_extra("fastavro", "avro", f"state {state!r}, of an Avro type,")
        self.schema: Schema = {"type": "avro", "schema": schema}
        self._text = schema
        self._parsed = avro.parse_schema(json.loads(schema))
        self._writer = self._parsed if writer is None else avro.parse_schema(json.loads(writer))
        from penstock.state.encoding.messages.avro_defaults import load_defaults  # needs fastavro

        load_defaults(self._parsed)
        self._reader = None if writer is None else self._parsed
        self._validate = import_extra("fastavro.validation", "avro", f"state {state!r}, of an Avro type,").validate
        self._write, self._read = avro.schemaless_writer, avro.schemaless_reader

    def to_bytes(self, value: Any) -> bytes:
        file = io.BytesIO()
        try:
            self._write(file, self._parsed, value, strict_allow_default=True)
            self._validate(
                value, self._parsed, strict=True
            )  # without validation, 1.9 is written as 1, and "no" as true
        except Exception as error:  # fastavro's errors, and any error that a value of the wrong type causes
            raise self.error(
                value,
                f"it does not fit the state's Avro schema: {_described(error)}",
                "store values that fit the schema: dicts with its fields, and values such as datetime and Decimal for logical types",
            ) from None
        return file.getvalue()

    def from_bytes(self, data: bytes) -> Any:
        value = self._read(io.BytesIO(data), self._writer, self._reader)
        # fastavro gives all values the same default object for a new field. A function may change a value, so return a copy.
        return value if self._reader is None else copy.deepcopy(value)

    def reader_of(self, old: Schema) -> Codec:
        super().reader_of(old)
        if old["schema"] == self._text:
            return self
        return AvroCodec(self._text, self.state, self.operator, writer=old["schema"])


def _described(error: Exception) -> str:
    """Return an error's text in one line. A validation error of fastavro has several lines of JSON."""
    parts = getattr(error, "errors", None)
    return "; ".join(map(str, parts)) if isinstance(parts, list | tuple) else str(error) or type_name(type(error))


class ProtobufCodec(MessageCodec):
    """The codec of a Protobuf message.

    Args:
        message: the generated class.
    """

    def __init__(self, message: Any, state: str, operator: str) -> None:
        super().__init__(state, operator)
        self._message = message
        self.schema = describe_message(message.DESCRIPTOR)
        self._parse = message.FromString

    def to_bytes(self, value: Any) -> bytes:
        if type(value) is not self._message:
            raise self._misfit(value, f"the value is a {type_name(type(value))}")
        try:
            content: bytes = value.SerializeToString(deterministic=True)
        except Exception as error:  # a required field is not set
            raise self._misfit(value, str(error)) from None
        return content

    def _misfit(self, value: Any, reason: str) -> StateTypeError:
        name = self._message.DESCRIPTOR.full_name
        return self.error(value, f"it is declared as the message {name}, and {reason}", f"store messages of {name}")

    def from_bytes(self, data: bytes) -> Any:
        return self._parse(data)
