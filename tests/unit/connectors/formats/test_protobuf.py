"""Protobuf: records of every type in messages, other versions of a message, damage, and the head of a schema registry."""

from __future__ import annotations

import contextlib
import datetime
import pickle
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.protobuf import descriptor_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.types import Row
from penstock.datastream.formats.protobuf import (
    ProtobufDeserializationSchema,
    ProtobufSchema,
    ProtobufSerializationSchema,
)

_KINDS = {"string": 9, "int64": 3, "double": 1, "bool": 8, "bytes": 12, "int32": 5, "uint32": 13}
_LIBRARY = (timestamp_pb2, duration_pb2, wrappers_pb2)


def described(fields: dict[str, str], more: dict[str, str] | None = None, name: str = "Reading") -> bytes:
    """A descriptor set as protoc writes it; types are "int64", "optional …", "repeated …", "map …", and names of messages."""
    file = descriptor_pb2.FileDescriptorProto(name="w.proto", package="weather", syntax="proto3")
    file.dependency.extend(module.DESCRIPTOR.name for module in _LIBRARY)
    kind = file.enum_type.add(name="Kind")
    for number, label in enumerate(("UNKNOWN", "WIND", "RAIN")):
        kind.value.add(name=label, number=number)
    for message_name, of in (("Point", more or {"x": "int32", "y": "int32"}), (name, fields)):
        message = file.message_type.add(name=message_name)
        for number, (field, said) in enumerate(of.items(), 1):
            _add(message, field, number, said, message_name)
    found = descriptor_pb2.FileDescriptorSet()
    for module in _LIBRARY:
        module.DESCRIPTOR.CopyToProto(found.file.add())
    found.file.add().CopyFrom(file)
    return found.SerializeToString()


def _add(message: Any, name: str, number: int, said: str, within: str) -> None:
    how, _, rest = said.rpartition(" ")
    field = message.field.add(name=name, number=number, label=3 if how in ("repeated", "map") else 1)
    if how == "map":
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        _add(entry, "key", 1, "string", within)
        _add(entry, "value", 2, rest, within)
        field.type, field.type_name = 11, f".weather.{within}.{entry.name}"
    elif rest in _KINDS:
        field.type = _KINDS[rest]
    else:
        field.type = 14 if rest == "Kind" else 11
        field.type_name = rest if rest.startswith(".") else f".weather.{rest}"
    if how == "optional":
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


READING = {"id": "string", "celsius": "optional double", "n": "int64"}
RICH = {
    "at": ".google.protobuf.Timestamp",
    "took": ".google.protobuf.Duration",
    "note": ".google.protobuf.StringValue",
    "kind": "Kind",
    "raw": "bytes",
    "tags": "repeated string",
    "kinds": "repeated Kind",
    "where": "Point",
    "path": "repeated Point",
    "by": "map Point",
    "counts": "map int64",
}
RICH_VALUE = {
    "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.UTC),
    "took": datetime.timedelta(seconds=-1.5),
    "note": "",
    "kind": "RAIN",
    "raw": b"\x00\xff",
    "tags": ["a", "ü"],
    "kinds": ["WIND", "UNKNOWN"],
    "where": {"x": 1, "y": -1},
    "path": [{"x": 0, "y": 0}, {"x": 5, "y": 0}],
    "by": {"k": {"x": 2, "y": 3}},
    "counts": {"a": 1 << 40},
}
EMPTY = {"at": None, "took": None, "note": None, "kind": "UNKNOWN", "raw": b"", "tags": [], "kinds": [], "where": None, "path": [], "by": {}, "counts": {}}  # fmt: skip


def both(fields: dict[str, str], **options: Any) -> tuple[Any, Any, ProtobufSchema]:
    """A writer and a reader that have travelled to a worker."""
    schema = ProtobufSchema(described(fields), "weather.Reading")
    writes, reads = ProtobufSerializationSchema(schema), ProtobufDeserializationSchema(schema, **options)
    return pickle.loads(pickle.dumps(writes)), pickle.loads(pickle.dumps(reads)), schema


@pytest.mark.parametrize("value", [RICH_VALUE, EMPTY])
def test_values_of_every_type_come_back(value: dict[str, Any]) -> None:
    writes, reads, _ = both(RICH)
    assert reads.deserialize(writes.serialize(value)) == value


def test_what_is_written_is_what_protobufs_own_library_reads() -> None:
    writes, _, schema = both(RICH)
    message = schema.message.FromString(writes.serialize(RICH_VALUE))
    assert message.where.y == -1
    assert message.at.ToDatetime(datetime.UTC) == RICH_VALUE["at"]
    assert message.took.ToTimedelta() == RICH_VALUE["took"]
    assert list(message.kinds) == [1, 0]
    assert message.HasField("note")


class Tuple(NamedTuple):
    n: int
    id: str


@dataclass
class Data:
    id: str
    celsius: float | None
    n: int


@pytest.mark.parametrize(
    "value",
    [{"id": "a", "n": 1}, Tuple(1, "a"), Data("a", None, 1), Row(id="a", n=1), Row("a", None, 1), ("a", None, 1)],
)
def test_whatever_has_the_fields_is_written(value: Any) -> None:
    writes, reads, _ = both(READING)
    assert reads.deserialize(writes.serialize(value)) == {"id": "a", "celsius": None, "n": 1}


def test_messages_become_rows_where_that_is_asked_for() -> None:
    writes, reads, _ = both({"id": "string", "where": "Point"}, rows=True)
    assert reads.deserialize(writes.serialize({"id": "a", "where": {"x": 1}})) == Row(id="a", where=Row(x=1, y=0))


def test_fields_that_only_one_side_knows_are_left_out_or_empty() -> None:
    older, newer = (
        ProtobufSchema(described(fields), "weather.Reading") for fields in (READING, {**READING, "more": "int64"})
    )
    message = ProtobufSerializationSchema(newer).serialize({"id": "a", "more": 5})
    assert ProtobufDeserializationSchema(older).deserialize(message) == {"id": "a", "celsius": None, "n": 0}
    message = ProtobufSerializationSchema(older).serialize({"id": "a"})
    assert ProtobufDeserializationSchema(newer).deserialize(message)["more"] == 0


def test_a_message_may_hold_itself() -> None:
    schema = ProtobufSchema(described({"n": "int32", "below": "repeated Reading"}), "weather.Reading")
    value = {"n": 1, "below": [{"n": 2, "below": [{"n": 3, "below": []}]}]}
    message = ProtobufSerializationSchema(schema).serialize(value)
    assert ProtobufDeserializationSchema(schema).deserialize(message) == value


def test_an_enumeration_keeps_numbers_that_it_does_not_know() -> None:
    writes, reads, _ = both(RICH)
    assert reads.deserialize(writes.serialize({"kind": 77}))["kind"] == 77


@pytest.mark.parametrize("value", [{"id": 5}, {"no": 1}, {"n": 1 << 70}, {"n": "a"}, 5, ("a",), {"celsius": "x"}])
def test_records_that_do_not_fit_are_refused(value: Any) -> None:
    writes, _, _ = both(READING)
    with pytest.raises(RecordFormatError, match=r"does not fit weather\.Reading"):
        writes.serialize(value)


@given(st.binary(max_size=40))
def test_damaged_messages_are_told_or_read_and_nothing_else_comes_of_them(message: bytes) -> None:
    _, reads, _ = both(RICH)
    for schema in (reads, ProtobufDeserializationSchema(reads._schema, has_head=True)):
        with contextlib.suppress(RecordFormatError):
            assert set(schema.deserialize(message)) == set(RICH)


def test_one_bad_message_of_many_is_named() -> None:
    writes, reads, _ = both(READING)
    good = writes.serialize({"id": "a"})
    assert len(reads.deserialize_batch([good, good])) == 2
    with pytest.raises(RecordFormatError, match="malformed Protobuf message"):
        reads.deserialize_batch([good, b"\xff\xff", good])


def test_messages_with_a_registrys_head_are_read_and_written() -> None:
    schema = ProtobufSchema(described(READING), "weather.Reading")
    message = ProtobufSerializationSchema(schema, schema_id=7).serialize({"id": "a"})
    assert message[:5] == struct.pack(">bI", 0, 7)
    assert message[5:7] == b"\x02\x02"  # one number: the second message of the file
    reads = ProtobufDeserializationSchema(schema, has_head=True)
    assert reads.deserialize(message)["id"] == "a"
    first = ProtobufSchema(described(READING), "weather.Point")
    assert ProtobufSerializationSchema(first, schema_id=7).serialize({"x": 1})[5:6] == b"\0"
    for wrong in (message[:5] + b"\0" + message[7:], b"\1" + message[1:], message[:5], b"", message[:5] + b"\xff" * 9):
        with pytest.raises(RecordFormatError):
            reads.deserialize(wrong)


def test_generated_classes_and_files_of_protoc_are_schemas(tmp_path: Path) -> None:
    value = {"fields": {"a": {"number_value": 1.5}}}
    schema = pickle.loads(pickle.dumps(ProtobufSchema.of(struct_pb2.Struct)))
    message = ProtobufSerializationSchema(schema).serialize(value)
    assert struct_pb2.Struct.FromString(message)["a"] == 1.5
    path = tmp_path / "w.desc"
    path.write_bytes(described(READING))
    assert ProtobufSchema.parse_file(str(path), "weather.Reading").fields == ("id", "celsius", "n")


def test_what_is_no_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match=r"which have .*weather\.Reading"):
        ProtobufSchema(described(READING), "Reading")
    with pytest.raises(InvalidJob, match="cannot be used"):
        ProtobufSchema(b"\xff\xff", "weather.Reading")
    with pytest.raises(InvalidJob, match="cannot be read"):
        ProtobufSchema.parse_file(str(tmp_path / "none"), "weather.Reading")
    with pytest.raises(InvalidJob, match="no class of a Protobuf message"):
        ProtobufSerializationSchema(dict)
