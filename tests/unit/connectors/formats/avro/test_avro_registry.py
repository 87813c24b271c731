"""Avro with a schema registry: ids in messages, other versions, references, faults and passwords.

The registry is a fake that follows the documentation of Confluent's REST API, so that tests can inject faults. `integration/registry`
uses a real one.
"""

from __future__ import annotations

import json
import pickle
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from types import SimpleNamespace

import pytest

from penstock.common.errors import InvalidJob, RecordFormatError, SinkError, SourceError
from penstock.connectors.formats import registry as registry_module
from penstock.connectors.formats.avro.registered import avro_schema, registered
from penstock.connectors.formats.registry import SchemaAbsent
from penstock.datastream.formats.avro import (
    AvroDeserializationSchema,
    AvroSchema,
    AvroSerializationSchema,
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
    SchemaRegistry,
)
from tests.unit.connectors.formats.avro.avro_schemas import POINT, READING, by_fastavro, record
from tests.unit.connectors.formats.avro.fake_registry import Registry


def test_messages_carry_their_schema_id_and_each_schema_is_requested_once(registry: Registry) -> None:
    schema = AvroSchema(READING)
    values = [{"id": str(n), "celsius": float(n)} for n in range(10)]
    writes = ConfluentRegistryAvroSerializationSchema.for_generic("readings-value", schema, registry.url)
    messages = pickle.loads(pickle.dumps(writes)).serialize_batch(values)
    assert messages[3] == b"\x00\x00\x00\x00\x01" + by_fastavro(READING, values[3])
    reads = ConfluentRegistryAvroDeserializationSchema.for_generic(schema, registry.url)
    assert pickle.loads(pickle.dumps(reads)).deserialize_batch(messages) == values
    assert registry.requests == ["POST /subjects/readings-value/versions", "GET /schemas/ids/1"]


def test_other_schema_versions_are_read_as_the_programs_version(registry: Registry) -> None:
    older = registry.add("r-value", record(("id", "string")))
    newer = registry.add("r-value", record(("id", "string"), ("celsius", ["null", "double"]), ("by", "string")))
    fields = [{"name": "id", "type": "string"}, {"name": "celsius", "type": ["null", "double"], "default": None}]
    mine = AvroSchema(json.dumps({"type": "record", "name": "Reading", "fields": fields}))
    messages = [
        b"\x00" + older.to_bytes(4, "big") + b"\x02a",
        b"\x00" + newer.to_bytes(4, "big") + b"\x02b\x00\x02x",
    ]
    reads = ConfluentRegistryAvroDeserializationSchema.for_generic(mine, registry.url)
    assert reads.deserialize_batch(messages) == [{"id": "a", "celsius": None}, {"id": "b", "celsius": None}]


def test_schemas_are_completed_with_the_schemas_they_refer_to(registry: Registry) -> None:
    registry.add("point", json.dumps({**POINT, "name": "geo.Point"}))
    references = [{"name": "geo.Point", "subject": "point", "version": 1}]
    text = record(("a", "geo.Point"), ("b", ["null", "geo.Point"]))
    id = registry.add("r-value", text, references=references)
    found = avro_schema(SchemaRegistry(registry.url), id)
    value = {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 4}}
    assert AvroDeserializationSchema(found).deserialize(AvroSerializationSchema(found).serialize(value)) == value


def test_a_busy_registry_is_retried_and_a_lost_one_makes_no_message_malformed(
    registry: Registry,
) -> None:
    id = registry.add("r-value", READING)
    reads = ConfluentRegistryAvroDeserializationSchema.for_generic(AvroSchema(READING), registry.url)
    registry.failures = 3
    message = b"\x00" + id.to_bytes(4, "big") + by_fastavro(READING, {"id": "a", "celsius": None})
    assert reads.deserialize(message)["id"] == "a"
    away = ConfluentRegistryAvroDeserializationSchema.for_generic(AvroSchema(READING), "http://127.0.0.1:1")
    for call in (lambda: away.deserialize(message), lambda: away.deserialize_batch([message])):
        with pytest.raises(SourceError, match="does not answer GET /schemas/ids/1"):
            call()
    both = SchemaRegistry(f"http://127.0.0.1:1,{registry.url}")
    assert avro_schema(both, id) == AvroSchema(READING)


def test_incomplete_or_foreign_responses_make_no_message_malformed(registry: Registry) -> None:
    registry.add("r-value", READING)
    reads = ConfluentRegistryAvroDeserializationSchema.for_generic(AvroSchema(READING), registry.url)
    message = b"\x00\x00\x00\x00\x01" + by_fastavro(READING, {"id": "a", "celsius": None})
    registry.cut_off = 9
    with pytest.raises(SourceError, match=r"does not answer.*IncompleteRead"):
        reads.deserialize(message)
    registry.cut_off = 1
    assert reads.deserialize(message)["id"] == "a"
    for number, strange in enumerate(({"version": 1}, [], "schema", {"schema": READING, "references": [{}]}), 5):
        registry.schemas[number] = strange  # type: ignore[assignment]
        with pytest.raises(SourceError, match=r"is not a registry\. It responds"):
            reads.deserialize_batch([b"\x00\x00\x00\x00" + bytes([number]) + message[5:]])


def test_a_message_with_an_unknown_schema_id_is_malformed_and_requested_once(
    registry: Registry,
) -> None:
    reads = ConfluentRegistryAvroDeserializationSchema.for_generic(AvroSchema(READING), registry.url)
    proto = registry.add("p-value", 'syntax = "proto3";', schemaType="PROTOBUF")
    for id, reason in ((9, "404 Schema 9 not found"), (proto, "is a PROTOBUF schema"), (9, "404 Schema 9 not found")):
        message = b"\x00" + id.to_bytes(4, "big") + b"\x02a\x00"
        for call in (
            lambda message=message: reads.deserialize(message),
            lambda message=message: reads.deserialize_batch([message]),
        ):
            with pytest.raises(RecordFormatError, match=reason):
                call()
    assert registry.requests.count("GET /schemas/ids/9") == 2, "the second time for one that is new"


def test_a_refusal_of_the_registry_names_the_remedy(registry: Registry, tmp_path: Path) -> None:
    schema = AvroSchema(READING)
    reads = ConfluentRegistryAvroDeserializationSchema.for_generic(schema, registry.url)
    with pytest.raises(SourceError, match=r"(?s)404 HTTP 404 Not Found.*no schema ids"):
        avro_schema(SchemaRegistry(f"{registry.url}/elsewhere"), 9)
    for message in (b"{}", b"\x01\x00\x00\x00\x01", b""):
        with pytest.raises(RecordFormatError, match="does not begin with a schema id"):
            reads.deserialize(message)
    proto = registry.add("p-value", 'syntax = "proto3";', schemaType="PROTOBUF")
    with pytest.raises(SourceError, match="is a PROTOBUF schema"):
        avro_schema(SchemaRegistry(registry.url), proto)
    with pytest.raises(SinkError, match="Schema not found"):
        SchemaRegistry(registry.url, registers=False).register("none-value", registered(schema))
    registry.add("r-value", READING)
    registry.authorization = "Basic bWU6c2VjcmV0"
    with pytest.raises(SourceError, match=r"(?s)401.*user_info_file"):
        avro_schema(SchemaRegistry(registry.url), 1)
    (tmp_path / "user").write_text("me:secret\n")
    assert avro_schema(SchemaRegistry(registry.url, user_info_file=str(tmp_path / "user")), 2)
    with pytest.raises(InvalidJob, match="cannot be read"):
        avro_schema(SchemaRegistry(registry.url, user_info_file=str(tmp_path / "none")), 1)
    with pytest.raises(InvalidJob, match="give a URL"):
        SchemaRegistry("registry:8081")


@pytest.mark.parametrize(
    "url", ["http://job:s3cret@registry:8081", "job:s3cret@registry:8081", "http://a:8081,http://job:s3cret@b:8081"]
)
def test_a_registry_url_with_a_password_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        SchemaRegistry(url)
    assert "s3cret" not in str(caught.value)
    assert "registry" in str(caught.value)


def test_a_registry_password_is_not_sent_to_the_server_of_a_redirect(registry: Registry, tmp_path: Path) -> None:
    class Redirect(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", f"{registry.url}{self.path}")
            self.end_headers()

    registry.add("r-value", READING)
    (tmp_path / "user").write_text("me:secret\n")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Redirect)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    asks = SchemaRegistry(f"http://127.0.0.1:{server.server_port}", user_info_file=str(tmp_path / "user"))
    try:
        assert avro_schema(asks, 1)
        registry.authorization = "Basic bWU6c2VjcmV0"
        with pytest.raises(SourceError, match="401"):
            avro_schema(SchemaRegistry(asks.urls[0], user_info_file=asks.user_info_file), 1)
    finally:
        server.shutdown()
        server.server_close()


def test_a_schema_that_is_registered_late_is_found_after_some_seconds(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry has several servers. One of them may receive the schema later than the producer."""
    asks = SchemaRegistry(registry.url)
    with pytest.raises(SchemaAbsent):
        asks.schema(1, "AVRO")
    registry.add("r-value", READING)
    later = monotonic() + 6
    monkeypatch.setattr(registry_module, "time", SimpleNamespace(monotonic=lambda: later))
    assert asks.schema(1, "AVRO").kind == "AVRO"
