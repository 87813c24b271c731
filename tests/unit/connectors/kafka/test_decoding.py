"""Values of every format become columns, with the timestamps of their messages. A bad value is rejected alone, without its batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from google.protobuf import descriptor_pb2

from penstock.common.errors import RecordFormatError
from penstock.connectors.kafka.source.deserializer import Deserializer, KafkaDecoder
from penstock.datastream.formats.avro import AvroDeserializationSchema, AvroSchema, AvroSerializationSchema
from penstock.datastream.formats.json import ConfluentRegistryJsonDeserializationSchema, JsonLinesFormat
from penstock.datastream.formats.protobuf import (
    ProtobufDeserializationSchema,
    ProtobufSchema,
    ProtobufSerializationSchema,
)
from penstock.records.batch import ColumnBatch


class Message(NamedTuple):
    """A fake of the client's message."""

    number: int
    content: bytes | None

    def value(self) -> bytes | None:
        return self.content

    def timestamp(self) -> tuple[int, int]:
        return 1, self.number

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.number

    def key(self) -> None: ...

    def headers(self) -> None: ...


AVRO = AvroSchema(
    '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "long"}]}'
)


def protobuf() -> ProtobufSchema:
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", syntax="proto3")
    message = file.message_type.add(name="R")
    message.field.add(name="id", number=1, label=1, type=9)
    message.field.add(name="n", number=2, label=1, type=3)
    return ProtobufSchema(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), "R")


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


FIELDS = {"id": str, "n": int}
# The schema's id contains the byte of a line end.
HEAD = b"\0\0\0\0\n"


@pytest.mark.parametrize(
    ("reads", "write"),
    [
        (AvroDeserializationSchema.for_generic(AVRO), AvroSerializationSchema.for_generic(AVRO).serialize),
        (ProtobufDeserializationSchema(protobuf()), ProtobufSerializationSchema(protobuf()).serialize),
        (JsonLinesFormat(FIELDS), as_json),
        (ConfluentRegistryJsonDeserializationSchema(FIELDS), lambda value: HEAD + as_json(value)),
    ],
)
def test_values_become_columns_and_malformed_or_empty_ones_are_rejected(
    reads: Deserializer, write: Callable[[Any], bytes]
) -> None:
    values = [{"id": f"a{n}", "n": n} for n in range(5)]
    messages = [Message(n, write(value)) for n, value in enumerate(values)]
    batch, rejected = KafkaDecoder(reads, rejects=False, timestamps=True).decode(messages)
    assert isinstance(batch, ColumnBatch)
    assert rejected == []
    assert batch.timestamps is not None
    assert batch.timestamps.tolist() == [0, 1, 2, 3, 4]
    assert batch.column("n").to_pylist() == [0, 1, 2, 3, 4]
    assert batch.slice(3, 5).rows().values == values[3:]
    messages[1:1] = [Message(10, b"\xff\xff\xff"), Message(11, None)]
    some, rejected = KafkaDecoder(reads, rejects=True, timestamps=True).decode(messages)
    assert some is not None
    assert some.rows().values == values
    assert [message.offset for message in rejected] == [10, 11]
    assert "it has no value (a tombstone)" in rejected[1].reason
    with pytest.raises(RecordFormatError, match="malformed message in t-0 at offset 10"):
        KafkaDecoder(reads, rejects=False, timestamps=True).decode(messages)
