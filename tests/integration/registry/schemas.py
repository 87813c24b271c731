"""The schemas of these tests, and records encoded by hand as a plain producer encodes them."""

from __future__ import annotations

import io
import json
import uuid
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2

from penstock.datastream.formats.avro import AvroSchema
from penstock.datastream.formats.protobuf import ProtobufSchema
from tools.servers.registry import RegistryServer

STRING, INT64, INT32, MESSAGE = 9, 3, 5, 11


def subject(prefix: str = "topic") -> str:
    """Return a new subject."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}-value"


def avro(*fields: Any, name: str = "Reading") -> AvroSchema:
    """Return a schema. Fields are pairs of name and type, or triples with a default."""
    declared = [dict(zip(("name", "type", "default"), field, strict=False)) for field in fields]
    return AvroSchema(json.dumps({"type": "record", "name": name, "fields": declared}))


FIRST = avro(("id", "string"), ("n", "long"))
SECOND = avro(
    ("id", "string"), ("n", "long"), ("tags", {"type": "array", "items": "string"}, []), ("raw", "bytes", "\u00ff")
)
OTHER = avro(("id", "string"), ("n", "string"))
"""A schema that is not compatible with FIRST."""


def by_hand(server: RegistryServer, of: str, schema: AvroSchema, *values: Any) -> list[bytes]:
    """Return messages of a producer that does not use Penstock."""
    id = posted(server, of, schema.text)
    messages = []
    for value in values:
        data = io.BytesIO()
        fastavro.schemaless_writer(data, schema.parsed, value)
        messages.append(b"\0" + id.to_bytes(4, "big") + data.getvalue())
    return messages


def posted(server: RegistryServer, of: str, text: str, kind: str = "AVRO", **more: Any) -> int:
    """Register a schema as another client, and return its id."""
    with server.client() as client:
        answer = client.post(f"/subjects/{of}/versions", json={"schema": text, "schemaType": kind, **more})
        return int(answer.raise_for_status().json()["id"])


def file(name: str, *messages: tuple[str, list[tuple[str, Any]]], imports: tuple[str, ...] = ()) -> Any:
    """Return a `FileDescriptorProto`. Fields are pairs of name and type, which is a number or the name of a message."""
    found = descriptor_pb2.FileDescriptorProto(name=name, package="weather", syntax="proto3", dependency=imports)
    for message_name, fields in messages:
        message = found.message_type.add(name=message_name)
        for number, (field, kind) in enumerate(fields, 1):
            added = message.field.add(name=field, number=number, label=1)
            if isinstance(kind, str):
                added.type, added.type_name = MESSAGE, f".weather.{kind}"
            else:
                added.type = kind
    return found


def protobuf(message: str, *files: Any) -> ProtobufSchema:
    return ProtobufSchema(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString(), f"weather.{message}")


POINT = ("Point", [("x", INT32)])
READING = ("Reading", [("id", STRING), ("n", INT64)])
