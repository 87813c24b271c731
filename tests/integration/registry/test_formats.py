"""Avro, Protobuf and JSON with a real schema registry: registering and looking up schemas, errors, and reading other writers'
messages."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path

import pytest

from penstock.common.errors import RecordFormatError, SinkError, SourceError
from penstock.datastream.formats.avro import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
    SchemaRegistry,
)
from penstock.datastream.formats.json import (
    ConfluentRegistryJsonDeserializationSchema,
    ConfluentRegistryJsonSerializationSchema,
)
from penstock.datastream.formats.protobuf import ProtobufDeserializationSchema, ProtobufSerializationSchema
from tests.integration.registry.schemas import (
    FIRST,
    INT64,
    OTHER,
    POINT,
    READING,
    SECOND,
    STRING,
    by_hand,
    file,
    posted,
    protobuf,
    subject,
)
from tools.servers.registry import USER, RegistryServer

pytestmark = pytest.mark.registry
reads_avro = ConfluentRegistryAvroDeserializationSchema.for_generic
writes_avro = ConfluentRegistryAvroSerializationSchema.for_generic
JSON_SCHEMA = json.dumps({"type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}})


# --- Avro -----------------------------------------------------------------------------------------------------


def test_an_avro_schema_is_registered_once_and_its_records_are_read_unchanged(registry_server: RegistryServer) -> None:
    of, value = subject(), {"id": "a", "n": 1}
    for _ in range(2):
        writes = pickle.loads(pickle.dumps(writes_avro(of, FIRST, registry_server.url)))
        messages = writes.serialize_batch([value] * 2)
    assert messages == by_hand(registry_server, of, FIRST, value, value)
    assert reads_avro(FIRST, registry_server.url).deserialize_batch(messages) == [value] * 2
    assert registry_server.versions(of) == [FIRST.text]


def test_each_version_is_converted_to_the_programs_version(registry_server: RegistryServer) -> None:
    of = subject()
    old = by_hand(registry_server, of, FIRST, {"id": "a", "n": 1}, {"id": "b", "n": 2})
    new = by_hand(registry_server, of, SECOND, {"id": "c", "n": 3, "tags": ["x"], "raw": b"\1"})
    assert reads_avro(FIRST, registry_server.url).deserialize_batch(old + new)[2] == {"id": "c", "n": 3}
    first, second, third = reads_avro(SECOND, registry_server.url).deserialize_batch(old + new)
    assert first == {"id": "a", "n": 1, "tags": [], "raw": b"\xff"}
    assert third == {"id": "c", "n": 3, "tags": ["x"], "raw": b"\1"}
    first["tags"].append("changed")
    assert second["tags"] == []


def test_a_schema_that_breaks_the_subjects_rule_is_refused_before_anything_is_written(
    registry_server: RegistryServer,
) -> None:
    of = subject()
    writes_avro(of, FIRST, registry_server.url).serialize({"id": "a", "n": 1})
    registry_server.set_compatibility(of)
    writes_avro(of, SECOND, registry_server.url).validate()
    assert registry_server.versions(of) == [FIRST.text], "looking registers nothing"
    other = writes_avro(of, OTHER, registry_server.url)
    with pytest.raises(SinkError, match=rf"(?s)a schema of '{of}': .*compatible.*change the schema, or the rules"):
        other.validate()
    with pytest.raises(SinkError, match=rf"(?s)a schema of '{of}': 409 .*STRING.*change the schema, or the rules"):
        other.serialize({"id": "a", "n": "1"})


def test_a_schema_must_exist_in_any_text_if_it_is_not_registered(registry_server: RegistryServer) -> None:
    of = subject()
    asks = SchemaRegistry(registry_server.url, registers=False)
    writes = writes_avro(of, FIRST, asks)
    for call in (writes.validate, lambda: writes.serialize({"id": "a", "n": 1})):
        with pytest.raises(SinkError, match=rf"(?s){of}.*404.*register the schema under '{of}'"):
            call()
    id = posted(registry_server, of, json.dumps(json.loads(FIRST.text), indent=2))
    writes.validate()
    assert writes.serialize({"id": "a", "n": 1})[1:5] == id.to_bytes(4, "big")


def test_unknown_schema_ids_and_ids_of_other_formats_are_malformed_messages(registry_server: RegistryServer) -> None:
    kinds = {
        "AVRO": reads_avro(FIRST, registry_server.url),
        "JSON": ConfluentRegistryJsonDeserializationSchema(registry=registry_server.url),
        "PROTOBUF": ProtobufDeserializationSchema(
            protobuf("Reading", file("a.proto", READING)), registry=registry_server.url
        ),
    }
    ids = {
        "AVRO": posted(registry_server, subject(), FIRST.text),
        "JSON": posted(registry_server, subject(), JSON_SCHEMA, "JSON"),
        "PROTOBUF": posted(registry_server, subject(), 'syntax = "proto3"; message M { int32 x = 1; }', "PROTOBUF"),
    }
    for kind, reads in kinds.items():
        reads.validate()
        with pytest.raises(RecordFormatError, match="404 No content with ID '99999'"):
            reads.deserialize(b"\0" + (99_999).to_bytes(4, "big") + b"\0\0")
        for other in ids.keys() - {kind}:
            with pytest.raises(RecordFormatError, match=f"is a {other} schema, not {kind}"):
                reads.deserialize(b"\0" + ids[other].to_bytes(4, "big") + b"\0\0")


def test_a_registry_requires_user_and_password(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    with RegistryServer(tmp_path / "server", password="right") as server:
        for credentials in ("", f"{USER}:wrong"):
            secret.write_text(credentials)
            registry = SchemaRegistry(server.url, user_info_file=str(secret) if credentials else "")
            with pytest.raises(SourceError, match=r"(?s)401.*user_info_file"):
                reads_avro(FIRST, registry).validate()
            with pytest.raises(SinkError, match=r"(?s)401.*user_info_file"):
                writes_avro("any-value", FIRST, registry).validate()
        secret.write_text(f"{USER}:right\n")
        message = writes_avro("any-value", FIRST, registry).serialize({"id": "a", "n": 1})
        assert reads_avro(FIRST, registry).deserialize(message) == {"id": "a", "n": 1}


# --- Protobuf -------------------------------------------------------------------------------------------------


def test_protobuf_is_registered_as_the_text_of_its_file_with_what_it_imports(registry_server: RegistryServer) -> None:
    of = subject()
    shared = file("geo/point.proto", POINT)
    mine = file("w.proto", ("Reading", [("id", STRING), ("where", "Point")]), imports=("geo/point.proto",))
    schema = protobuf("Reading", shared, mine)
    writes = ProtobufSerializationSchema(schema, registry=registry_server.url, subject=of)
    writes.validate()
    value = {"id": "a", "where": {"x": 5}}
    message = pickle.loads(pickle.dumps(writes)).serialize(value)
    reads = pickle.loads(pickle.dumps(ProtobufDeserializationSchema(schema, registry=registry_server.url)))
    assert reads.deserialize(message) == value
    (text,) = registry_server.versions(of)
    assert text.startswith('syntax = "proto3";\npackage weather;\nimport "geo/point.proto";\nmessage Reading {')
    assert "message Point {" in registry_server.versions("geo%2Fpoint.proto")[0]
    with registry_server.client() as client:
        registered = client.get(f"/schemas/ids/{int.from_bytes(message[1:5], 'big')}").json()
    assert registered["references"] == [{"name": "geo/point.proto", "subject": "geo/point.proto", "version": 1}]
    asks = SchemaRegistry(registry_server.url, registers=False)
    assert ProtobufSerializationSchema(schema, registry=asks, subject=of).serialize(value) == message
    with pytest.raises(SinkError, match=r"(?s)none-value.*register the schema under 'none-value'"):
        ProtobufSerializationSchema(schema, registry=asks, subject="none-value").validate()


def test_protobuf_of_any_version_is_read_and_other_messages_of_its_file_are_refused(
    registry_server: RegistryServer,
) -> None:
    of = subject()
    mine = protobuf("Reading", file("w.proto", READING))
    newer = file("w.proto", POINT, ("Reading", [*READING[1], ("more", INT64)]))
    reads = ProtobufDeserializationSchema(mine, registry=registry_server.url)
    writes = ProtobufSerializationSchema(protobuf("Reading", newer), registry=registry_server.url, subject=of)
    message = writes.serialize({"id": "a", "n": 1, "more": 2})
    assert message[5:7] == b"\2\2", "the second message of the writer's file, where ours is the first"
    assert reads.deserialize(message) == {"id": "a", "n": 1}
    strange = ProtobufSerializationSchema(protobuf("Point", newer), registry=registry_server.url, subject=of)
    with pytest.raises(RecordFormatError, match=r"index \[0\], which belongs to message weather\.Point"):
        reads.deserialize(strange.serialize({"x": 1}))


def test_protobuf_of_writers_that_register_descriptors_is_read(registry_server: RegistryServer) -> None:
    with_map = file("w.proto", ("Outer", [("id", STRING)]))
    outer = with_map.message_type[0]
    entry = outer.nested_type.add(name="ByEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=STRING)
    entry.field.add(name="value", number=2, label=1, type=INT64)
    outer.field.add(name="by", number=2, label=3, type=11, type_name=".weather.Outer.ByEntry")
    inner = outer.nested_type.add(name="Reading")
    inner.field.add(name="id", number=1, label=1, type=STRING)
    schema = protobuf("Outer.Reading", with_map)
    text = base64.b64encode(with_map.SerializeToString()).decode()
    id = posted(registry_server, subject(), text, "PROTOBUF")
    reads = ProtobufDeserializationSchema(schema, registry=registry_server.url)
    body = b"\x0a\x01a"
    for index in (b"\4\0\2", b"\4\0\0"):  # with and without the count of the message that the map generates
        assert reads.deserialize(b"\0" + id.to_bytes(4, "big") + index + body) == {"id": "a"}
    writes = ProtobufSerializationSchema(schema, registry=registry_server.url, subject=subject())
    assert writes.serialize({"id": "a"})[5:] == b"\4\0\0" + body, "the registry has the text, where the map makes none"


def test_protobuf_that_breaks_the_subjects_rule_is_refused(registry_server: RegistryServer) -> None:
    of = subject()
    one, other = (protobuf("Reading", file("w.proto", ("Reading", [("id", kind)]))) for kind in (STRING, INT64))
    ProtobufSerializationSchema(one, registry=registry_server.url, subject=of).serialize({"id": "a"})
    registry_server.set_compatibility(of)
    writes = ProtobufSerializationSchema(other, registry=registry_server.url, subject=of)
    for call in (writes.validate, lambda: writes.serialize({"id": 1})):
        with pytest.raises(SinkError, match=rf"(?s)a schema of '{of}'.*ompatible.*change the schema, or the rules"):
            call()


# --- JSON -----------------------------------------------------------------------------------------------------


def test_json_has_the_head_and_is_read_in_batches_of_columns(registry_server: RegistryServer) -> None:
    of = subject()
    writes = pickle.loads(pickle.dumps(ConfluentRegistryJsonSerializationSchema(of, JSON_SCHEMA, registry_server.url)))
    writes.validate()
    values = [{"id": "a\n", "n": n} for n in range(3)]
    messages = writes.serialize_batch(values)
    assert messages[2][:1] == b"\0"
    assert json.loads(messages[2][5:]) == values[2]
    assert registry_server.versions(of) == [JSON_SCHEMA]
    fields = {"id": str, "n": int}
    reads = pickle.loads(pickle.dumps(ConfluentRegistryJsonDeserializationSchema(fields, registry=registry_server.url)))
    assert reads.deserialize_batch(messages) == values
    batch = reads.batch_decoder()(messages)
    assert batch.column("n").to_pylist() == [0, 1, 2]
    assert batch.rows().values == values
    with pytest.raises(RecordFormatError, match="does not begin with a schema id"):
        reads.deserialize(b'{"id": "a", "n": 1}')
