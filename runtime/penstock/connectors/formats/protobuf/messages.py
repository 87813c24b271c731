"""Conversion of Protobuf messages to records, and of records to messages.

**The wire format of Confluent's registry** puts a head before a message:

- a zero byte,
- the id of the writer's schema (32 bits, big-endian),
- the message's place in the schema's file: the length of a list, and then the list of zigzag numbers. The first message has one zero byte.

Protobuf's rules decide about fields that only one side knows, so the reader's descriptor decodes messages of all versions. If a
registry is used, the reader asks the registry once for each id which message the numbers mean. A message of another
kind is refused. If no registry is used, the numbers are compared with the reader's file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from penstock.common.errors import InvalidJob, PlatformError, RecordFormatError
from penstock.common.serialization import SerializationSchema
from penstock.connectors.formats.message_format import DecodeMessages, MessageFormat, RecordBatches
from penstock.connectors.formats.protobuf.columns import cannot_fail, enumerations, shape_of
from penstock.connectors.formats.protobuf.file_messages import FileMessage
from penstock.connectors.formats.protobuf.registered import check, messages_of, register
from penstock.connectors.formats.protobuf.schema import ProtobufSchema
from penstock.connectors.formats.protobuf.values import Read, Reading, fill
from penstock.connectors.formats.record_format import MalformedBlock
from penstock.connectors.formats.registry import HEAD, SchemaAbsent, SchemaRegistry, id_of
from penstock.records.batch import Batch, RowBatch

_SHOWN = 200


class ProtobufMessages(MessageFormat):
    """A format of Protobuf messages.

    Args:
        schema: the schema of the messages, or a generated class.
        rows: whether records are Rows instead of dicts.
        has_head: whether messages begin with the head of Confluent's registry.
        registry: the registry's URL, or a `SchemaRegistry`. The registry identifies the kind of a message. Messages then have the head.
    """

    def __init__(
        self,
        schema: ProtobufSchema | Any,
        *,
        rows: bool = False,
        has_head: bool = False,
        registry: str | SchemaRegistry | None = None,
    ) -> None:
        self._schema = schema if isinstance(schema, ProtobufSchema) else ProtobufSchema.of(schema)
        self._rows = rows
        self._registry = None if registry is None else SchemaRegistry.of(registry)
        self._has_head = has_head or registry is not None
        self._reads: tuple[Callable[[bytes], Any], Read] | None = None
        """Two functions: one parses a message, the other makes a record of it."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reads": None}

    def deserialize(self, message: bytes) -> Any:
        parse, convert = self._reads or self._reader()
        try:
            return convert(parse(bytes(message)))
        except PlatformError:
            raise
        except Exception as error:  # damaged bytes make the library raise any kind of error
            raise RecordFormatError(
                f"malformed Protobuf message: {type(error).__name__}: {error}: {bytes(message)[:_SHOWN]!r}",
                remedy=f"check that it is a {self._schema.name}, and that either both or neither of writer and reader use a schema registry",
            ) from error

    def deserialize_batch(self, messages: Sequence[bytes]) -> list[Any]:
        parse, convert = self._reads or self._reader()
        try:
            return [convert(parse(message)) for message in messages]
        except PlatformError:
            raise
        except Exception:  # decode message by message, to find the malformed one
            return super().deserialize_batch(messages)

    def batch_decoder(self) -> DecodeMessages:
        parse, convert = self._reads or self._reader()
        descriptor = self._schema.descriptor
        shape = shape_of(descriptor, rows=self._rows)
        named = enumerations(descriptor)
        if shape is None:
            return lambda messages: RowBatch([convert(parse(message)) for message in messages])

        def record(message: bytes) -> Any:
            return convert(parse(message))

        if cannot_fail(descriptor):  # keep the parsed messages, and make columns only on request
            getters = [read for _, read in Reading(rows=self._rows).fields(descriptor)]
            names = [read for field, read in zip(shape.names, getters, strict=True) if field in named]
            return _decoder(parse, RecordBatches(shape, convert, getters, size=_size), names)
        return _decoder(record, RecordBatches(shape, None), list(map(itemgetter, named)))

    def _reader(self) -> tuple[Callable[[bytes], Any], Read]:
        parse = self._schema.message.FromString
        convert = Reading(rows=self._rows).reader(self._schema.descriptor)
        heads: set[bytes] = set()
        """Heads that are already checked. Most topics have few different heads."""

        def with_head(message: bytes) -> Any:
            begin = _head_end(message)
            head = message[:begin]
            if head not in heads:
                self._check_head(head)
                heads.add(head)
            return parse(message[begin:])

        self._reads = with_head if self._has_head else parse, convert
        return self._reads

    def _check_head(self, head: bytes) -> None:
        """Check that a head belongs to this schema's message.

        Raises:
            MalformedBlock: the head belongs to another message.
        """
        index = _index(head, HEAD.size)[0]
        found = self._file(id_of(head)).names(index)
        if self._schema.name not in found:
            message = " or ".join(sorted(found)) or "unknown"
            raise MalformedBlock(
                f"it has the index {list(index)}, which belongs to message {message}; {self._schema.name} has the index {list(self._schema.index)}"
            )

    def _file(self, id: int) -> FileMessage:
        if self._registry is None:
            return self._schema.messages
        try:
            return messages_of(self._registry, id)
        except SchemaAbsent as error:
            raise MalformedBlock(error.message) from error

    def validate(self) -> None:
        if self._registry is not None:
            self._registry.ping()


class ProtobufMessageWriter(SerializationSchema):
    """A writer of Protobuf messages.

    Args:
        schema: the schema of the messages, or a generated class.
        schema_id: the registry's id of the schema. Messages then begin with the head, without a request to the registry.
        registry: the registry's URL, or a `SchemaRegistry`. Messages then begin with the registry's head.
        subject: the subject of the schema in the registry; the convention is `TOPIC-value`.
    """

    def __init__(
        self,
        schema: ProtobufSchema | Any,
        *,
        schema_id: int | None = None,
        registry: str | SchemaRegistry | None = None,
        subject: str = "",
    ) -> None:
        if (registry is not None) != bool(subject) or (registry is not None and schema_id is not None):
            raise InvalidJob(
                "Protobuf messages with a head need either a registry and a subject, or a schema_id",
                remedy="give registry='http://registry:8081' and subject='TOPIC-value'",
            )
        self._schema = schema if isinstance(schema, ProtobufSchema) else ProtobufSchema.of(schema)
        self._registry = None if registry is None else SchemaRegistry.of(registry)
        self._subject = subject
        self._head: bytes | None = None if registry is not None else b""
        if schema_id is not None:
            self._head = HEAD.pack(0, schema_id) + _packed(self._schema.index)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_head": None if self._registry is not None else self._head}

    def serialize(self, element: Any) -> bytes:
        head = self._head
        if head is None:
            assert self._registry is not None
            id = register(self._registry, self._subject, self._schema)
            head = self._head = HEAD.pack(0, id) + _packed(self._schema.index)
        try:
            message = self._schema.message()
            fill(message, element)
            return head + bytes(message.SerializeToString())
        except Exception as error:
            raise RecordFormatError(
                f"{str(element)[:_SHOWN]} does not fit {self._schema.name}: {type(error).__name__}: {error}",
                remedy="write records with the message's fields and types",
            ) from error

    def validate(self) -> None:
        if self._registry is not None:
            check(self._registry, self._subject, self._schema)


def _decoder(read: Callable[[bytes], Any], batches: RecordBatches, names: list[Callable[[Any], Any]]) -> DecodeMessages:
    """Return a decoder of messages. `names` are functions that return the values of enumerations."""

    def decode(messages: Sequence[bytes]) -> Batch:
        found = list(map(read, messages))
        for get in names:
            if int in set(map(type, map(get, found))):  # a number without a name does not fit a column of texts
                return batches.rows(found)
        return batches.batch(found)

    return decode


def _size(message: Any) -> int:
    """Return the approximate number of bytes of a message in memory."""
    return 200 + 2 * int(message.ByteSize())


def _head_end(message: bytes) -> int:
    """Return the length of the head.

    Raises:
        MalformedBlock: the message has no head.
    """
    if len(message) <= HEAD.size or message[0]:
        raise MalformedBlock("the message does not begin with a schema id")
    return HEAD.size + 1 if not message[HEAD.size] else _index(message, HEAD.size)[1]


def _packed(index: tuple[int, ...]) -> bytes:
    """Return the bytes of a message's place in its file.

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
    """Return the message's place in its file, and the offset at which the message begins.

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
            raise MalformedBlock("the head of the message is incomplete")
        byte = message[begin]
        begin += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), begin
        shift += 7
