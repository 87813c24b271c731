"""Protobuf: records of every type in messages, other message versions, damaged data, and the head of a schema registry."""

from __future__ import annotations

import base64
import contextlib
import datetime
import pickle
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.types import Row
from penstock.connectors.formats.protobuf.file_messages import of_descriptor, of_text
from penstock.connectors.formats.protobuf.proto_text import proto_text
from penstock.datastream.formats.protobuf import (
    ProtobufDeserializationSchema,
    ProtobufSchema,
    ProtobufSerializationSchema,
)
from penstock.records.batch import RowBatch

_KINDS = {"string": 9, "int64": 3, "double": 1, "bool": 8, "bytes": 12, "int32": 5, "uint32": 13}
_LIBRARY = (timestamp_pb2, duration_pb2, wrappers_pb2)


def described(fields: dict[str, str], more: dict[str, str] | None = None, name: str = "Reading") -> bytes:
    """Return a descriptor set like protoc's. Types are "int64", "optional …", "repeated …", "map …", and names of messages."""
    file = descriptor_pb2.FileDescriptorProto(name="w.proto", package="weather", syntax="proto3")
    file.dependency.extend(module.DESCRIPTOR.name for module in _LIBRARY)
    kind = file.enum_type.add(name="Kind")
    for number, label in enumerate(("UNKNOWN", "WIND", "RAIN")):
        kind.value.add(name=label, number=number)
    for message_name, of in (("Point", more or {"x": "int32", "y": "int32"}), (name, fields)):
        message = file.message_type.add(name=message_name)
        for number, (field, kind_of_field) in enumerate(of.items(), 1):
            _add(message, field, number, kind_of_field, message_name)
    found = descriptor_pb2.FileDescriptorSet()
    for module in _LIBRARY:
        module.DESCRIPTOR.CopyToProto(found.file.add())
    found.file.add().CopyFrom(file)
    return found.SerializeToString()


def _add(message: Any, name: str, number: int, kind: str, within: str) -> None:
    how, _, rest = kind.rpartition(" ")
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
    """Return a writer and a reader that were pickled like for a worker."""
    schema = ProtobufSchema(described(fields), "weather.Reading")
    writes, reads = ProtobufSerializationSchema(schema), ProtobufDeserializationSchema(schema, **options)
    return pickle.loads(pickle.dumps(writes)), pickle.loads(pickle.dumps(reads)), schema


@pytest.mark.parametrize("value", [RICH_VALUE, EMPTY])
def test_values_of_every_type_are_read_back(value: dict[str, Any]) -> None:
    writes, reads, _ = both(RICH)
    assert reads.deserialize(writes.serialize(value)) == value


def test_the_protobuf_library_reads_written_messages() -> None:
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
def test_any_object_with_the_fields_is_written(value: Any) -> None:
    writes, reads, _ = both(READING)
    assert reads.deserialize(writes.serialize(value)) == {"id": "a", "celsius": None, "n": 1}


def test_messages_become_rows_on_request() -> None:
    writes, reads, _ = both({"id": "string", "where": "Point"}, rows=True)
    assert reads.deserialize(writes.serialize({"id": "a", "where": {"x": 1}})) == Row(id="a", where=Row(x=1, y=0))


def test_fields_known_to_one_side_are_skipped_or_empty() -> None:
    older, newer = (
        ProtobufSchema(described(fields), "weather.Reading") for fields in (READING, {**READING, "more": "int64"})
    )
    message = ProtobufSerializationSchema(newer).serialize({"id": "a", "more": 5})
    assert ProtobufDeserializationSchema(older).deserialize(message) == {"id": "a", "celsius": None, "n": 0}
    message = ProtobufSerializationSchema(older).serialize({"id": "a"})
    assert ProtobufDeserializationSchema(newer).deserialize(message)["more"] == 0


def test_a_message_may_contain_its_own_type() -> None:
    schema = ProtobufSchema(described({"n": "int32", "below": "repeated Reading"}), "weather.Reading")
    value = {"n": 1, "below": [{"n": 2, "below": [{"n": 3, "below": []}]}]}
    message = ProtobufSerializationSchema(schema).serialize(value)
    assert ProtobufDeserializationSchema(schema).deserialize(message) == value


def test_an_enumeration_keeps_unknown_numbers() -> None:
    writes, reads, _ = both(RICH)
    assert reads.deserialize(writes.serialize({"kind": 77}))["kind"] == 77


@pytest.mark.parametrize("value", [{"id": 5}, {"no": 1}, {"n": 1 << 70}, {"n": "a"}, 5, ("a",), {"celsius": "x"}])
def test_records_that_do_not_fit_are_refused(value: Any) -> None:
    writes, _, _ = both(READING)
    with pytest.raises(RecordFormatError, match=r"does not fit weather\.Reading"):
        writes.serialize(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"n": np.int64(5)}, {"n": 5}),
        ({"celsius": np.float32(1.5)}, {"celsius": 1.5}),
        ({"counts": {np.str_("a"): np.int32(1)}}, {"counts": {"a": 1}}),
        ({"ns": np.array([1, 2])}, {"ns": [1, 2]}),
        ({"raw": bytearray(b"a")}, {"raw": b"a"}),
        ({"raw": memoryview(b"a")}, {"raw": b"a"}),
        ({"raw": b"x" * 1_000_000}, {"raw": b"x" * 1_000_000}),
    ],
)
def test_numpys_values_and_bytes_of_any_kind_are_written(value: dict[str, Any], expected: dict[str, Any]) -> None:
    writes, reads, _ = both({**READING, "counts": "map int64", "ns": "repeated int64", "raw": "bytes"})
    found = reads.deserialize(writes.serialize(value))
    assert {name: found[name] for name in expected} == expected


def test_a_text_is_refused_as_a_repeated_field() -> None:
    writes, _, _ = both({"tags": "repeated string"})
    with pytest.raises(RecordFormatError, match="tags is a repeated field, but 'abc' is a single value"):
        writes.serialize({"tags": "abc"})


FLAT = {"id": "string", "celsius": "optional double", "n": "int64", "at": ".google.protobuf.Timestamp", "took": ".google.protobuf.Duration", "note": ".google.protobuf.StringValue", "kind": "Kind", "raw": "bytes", "b": "bool"}  # fmt: skip
NESTED = {"id": "string", "tags": "repeated string", "where": "Point", "path": "repeated Point", "counts": "map int64"}
FLAT_VALUES = [{name: RICH_VALUE[name] for name in ("at", "took", "note", "kind", "raw")} | {"id": "a", "celsius": 1.5, "n": 1, "b": True}, {}]  # fmt: skip
NESTED_VALUES = [
    {"id": "a", "tags": ["x"], "where": {"x": 1}, "path": [{"y": 2}], "counts": {"k": 3}},
    {"id": "b"},
]


@pytest.mark.parametrize(
    ("fields", "values", "rows"),
    [(FLAT, FLAT_VALUES, False), (FLAT, FLAT_VALUES, True), (NESTED, NESTED_VALUES, False)],
)
def test_a_batch_of_messages_has_columns_that_restore_the_same_records(
    fields: dict[str, str], values: list[dict[str, Any]], rows: bool
) -> None:
    writes, reads, _ = both(fields, rows=rows)
    messages = writes.serialize_batch(values)
    batch = reads.batch_decoder()(messages)
    expected = reads.deserialize_batch(messages)
    assert batch.rows().values == expected
    assert batch.column("id").to_pylist() == [value.get("id", "") for value in values]
    again = pickle.loads(pickle.dumps(batch.make_rows))(batch.columns)
    assert again == expected
    if "at" in fields:
        assert again[0]["at"].tzinfo is datetime.UTC


def test_the_size_of_undecoded_messages_includes_all_of_their_bytes() -> None:
    writes, reads, _ = both(READING)
    batch = reads.batch_decoder()(writes.serialize_batch([{"id": "x" * 1_000_000}] * 3))
    assert 3_000_000 <= batch.approximate_bytes() < 10_000_000
    assert batch.slice(0, 0).approximate_bytes() == 0


def test_an_unknown_enumeration_number_prevents_a_text_column() -> None:
    writes, reads, _ = both({"kind": "Kind", "n": "int64"})
    decode = reads.batch_decoder()
    assert decode(writes.serialize_batch([{"kind": "WIND"}])).column("kind").to_pylist() == ["WIND"]
    strange = decode(writes.serialize_batch([{"kind": "WIND"}, {"kind": 77}]))
    assert isinstance(strange, RowBatch)
    assert [value["kind"] for value in strange.values] == ["WIND", 77]


TEXT = """syntax = "proto3";
package weather;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
enum Kind {
  UNKNOWN = 0;
  WIND = 1;
  RAIN = 2;
}
message Point {
  int32 x = 1;
  int32 y = 2;
}
message Reading {
  string id = 1;
  optional double celsius = 2;
  .google.protobuf.Timestamp at = 3;
  .weather.Kind kind = 4;
  repeated .weather.Point path = 5;
  map<string, .weather.Point> by = 6;
}
"""


def test_protoc_reads_the_text_of_a_file() -> None:
    fields = {"id": "string", "celsius": "optional double", "at": RICH["at"], "kind": "Kind", "path": "repeated Point", "by": "map Point"}  # fmt: skip
    file = descriptor_pb2.FileDescriptorSet.FromString(described(fields)).file[-1]
    assert proto_text(file) == TEXT


OLD = """// message No {
syntax = 'proto2'; package a.b; /* message Nor { */
option (x) = { message { y: "}" } };
message M { optional group G = 1 { message InGroup {} } map<string, M> by = 2; message Inner { enum E { message = 1; } oneof o { string message = 1; } message Deep {} } }
service S { rpc Call (M) returns (M) { option z = "message T {"; } } message Last { string message = 1; }
"""


@pytest.mark.parametrize(
    ("index", "names"),
    [
        ((0,), {"a.b.M"}),
        ((1,), {"a.b.Last"}),
        ((2,), set()),
        ((0, 0), {"a.b.M.G", "a.b.M.Inner"}),
        ((0, 2), {"a.b.M.Inner"}),
        ((0, 2, 0), {"a.b.M.Inner.Deep"}),
        ((-1,), set()),
    ],
)
def test_message_numbers_are_found_in_the_text_of_their_file(index: tuple[int, ...], names: set[str]) -> None:
    found = of_text(OLD).names(index)
    assert found == names


@pytest.mark.parametrize("module", [descriptor_pb2, struct_pb2, timestamp_pb2, wrappers_pb2])
def test_text_and_descriptor_of_a_file_contain_the_same_messages(module: Any) -> None:
    def tree(message: Any) -> Any:
        return message.name, [tree(one) for one in message.within if not one.is_made]

    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    expected = tree(of_descriptor(file))
    assert tree(of_text(proto_text(file))) == expected
    assert tree(of_text(base64.b64encode(file.SerializeToString()).decode())) == expected


def test_registry_and_subject_must_be_given_together() -> None:
    schema = ProtobufSchema(described(READING), "weather.Reading")
    for options in (
        {"registry": "http://any"},
        {"subject": "s"},
        {"registry": "http://any", "subject": "s", "schema_id": 1},
    ):
        with pytest.raises(InvalidJob, match="need either a registry and a subject, or a schema_id"):
            ProtobufSerializationSchema(schema, **options)


@given(st.binary(max_size=40))
def test_a_damaged_message_is_malformed_or_read(message: bytes) -> None:
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
    assert message[5:7] == b"\x02\x02"  # one number, of the second message of the file
    reads = ProtobufDeserializationSchema(schema, has_head=True)
    assert reads.deserialize(message)["id"] == "a"
    first = ProtobufSchema(described(READING), "weather.Point")
    assert ProtobufSerializationSchema(first, schema_id=7).serialize({"x": 1})[5:6] == b"\0"
    for wrong in (message[:5] + b"\0" + message[7:], b"\1" + message[1:], message[:5], b"", message[:5] + b"\xff" * 9):
        with pytest.raises(RecordFormatError):
            reads.deserialize(wrong)


def test_generated_classes_and_protoc_files_are_accepted_as_schemas(tmp_path: Path) -> None:
    value = {"fields": {"a": {"number_value": 1.5}}}
    schema = pickle.loads(pickle.dumps(ProtobufSchema.of(struct_pb2.Struct)))
    message = ProtobufSerializationSchema(schema).serialize(value)
    assert struct_pb2.Struct.FromString(message)["a"] == 1.5
    path = tmp_path / "w.desc"
    path.write_bytes(described(READING))
    assert ProtobufSchema.parse_file(str(path), "weather.Reading").fields == ("id", "celsius", "n")


def test_an_invalid_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match=r"have no message 'Reading', but .*weather\.Reading"):
        ProtobufSchema(described(READING), "Reading")
    with pytest.raises(InvalidJob, match="cannot be used"):
        ProtobufSchema(b"\xff\xff", "weather.Reading")
    with pytest.raises(InvalidJob, match="cannot be read"):
        ProtobufSchema.parse_file(str(tmp_path / "none"), "weather.Reading")
    with pytest.raises(InvalidJob, match="not the class of a Protobuf message"):
        ProtobufSerializationSchema(dict)
