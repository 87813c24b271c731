"""Schemas from messages to records and back.

**The wire format of Confluent's registry** puts a head before a message: a zero byte, the id of its schema (32 bits, big-endian), and which message of the
schema's file it is, as a list of zigzag numbers with its length before it, or one zero byte for the first. Protobuf's own rules say what becomes of fields
that only one side knows, so a reader needs no registry: it takes the head off, and refuses a message of another kind.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from penstock.common.errors import RecordFormatError
from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.connectors.formats.protobuf.schema import ProtobufSchema
from penstock.connectors.formats.protobuf.values import Reading, fill
from penstock.connectors.formats.record_format import MalformedBlock

_HEAD = struct.Struct(">bI")
_SHOWN = 200


class ProtobufMessages(DeserializationSchema):
    """
    Args:
        schema: of the messages, or a generated class.
        rows: records are Rows, and not dicts.
        has_head: messages begin with what Confluent's registry puts before them.
    """

    def __init__(self, schema: ProtobufSchema | Any, *, rows: bool = False, has_head: bool = False) -> None:
        self._schema = schema if isinstance(schema, ProtobufSchema) else ProtobufSchema.of(schema)
        self._rows = rows
        self._has_head = has_head
        self._read: Callable[[bytes], Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_read": None}

    def deserialize(self, message: bytes) -> Any:
        read = self._read or self._reader()
        try:
            return read(bytes(message))
        except Exception as error:  # damaged bytes make the library raise whatever comes of them
            raise RecordFormatError(
                f"malformed Protobuf message: {type(error).__name__}: {error}: {bytes(message)[:_SHOWN]!r}",
                remedy=f"check that it is a {self._schema.name}, and with or without a registry's head as it is read",
            ) from error

    def deserialize_batch(self, messages: Sequence[bytes]) -> list[Any]:
        read = self._read or self._reader()
        try:
            return list(map(read, messages))
        except Exception:  # message by message, to find out which
            return super().deserialize_batch(messages)

    def _reader(self) -> Callable[[bytes], Any]:
        parse = self._schema.message.FromString
        convert = Reading(rows=self._rows).reader(self._schema.descriptor)
        index = self._schema.index

        def with_head(message: bytes) -> Any:
            if len(message) <= _HEAD.size or message[0]:
                raise MalformedBlock("it does not begin with a schema's id")
            found, begin = _index(message, _HEAD.size)
            if found != index:
                raise MalformedBlock(f"it is message {list(found)} of its file, {self._schema.name} is {list(index)}")
            return convert(parse(message[begin:]))

        self._read = with_head if self._has_head else lambda message: convert(parse(message))
        return self._read


class ProtobufMessageWriter(SerializationSchema):
    """
    Args:
        schema: of the messages, or a generated class.
        schema_id: the registry's, for messages that begin with its head; None: they do not.
    """

    def __init__(self, schema: ProtobufSchema | Any, *, schema_id: int | None = None) -> None:
        self._schema = schema if isinstance(schema, ProtobufSchema) else ProtobufSchema.of(schema)
        self._head = b"" if schema_id is None else _HEAD.pack(0, schema_id) + _packed(self._schema.index)

    def serialize(self, element: Any) -> bytes:
        try:
            message = self._schema.message()
            fill(message, element)
            return self._head + bytes(message.SerializeToString())
        except Exception as error:
            raise RecordFormatError(
                f"{str(element)[:_SHOWN]} does not fit {self._schema.name}: {type(error).__name__}: {error}",
                remedy="give records with the message's fields and types",
            ) from error


def _packed(index: tuple[int, ...]) -> bytes:
    """
    >>> _packed((0,)), _packed((1, 0))
    (b'\\x00', b'\\x04\\x02\\x00')
    """
    if index == (0,):
        return b"\0"
    return b"".join(_varint(number << 1) for number in (len(index), *index))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _index(message: bytes, begin: int) -> tuple[tuple[int, ...], int]:
    """Which message it is, and where it begins.

    >>> _index(b"\\x04\\x02\\x00rest", 0)
    ((1, 0), 3)
    """
    count, begin = _zigzag(message, begin)
    if count == 0:
        return (0,), begin
    numbers = []
    for _ in range(count):
        number, begin = _zigzag(message, begin)
        numbers.append(number)
    return tuple(numbers), begin


def _zigzag(message: bytes, begin: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if begin >= len(message) or shift > 28:
            raise MalformedBlock("its head is cut off")
        byte = message[begin]
        begin += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), begin
        shift += 7
