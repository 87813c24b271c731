"""Protobuf's schemas in a registry: the text of the message's file, which refers to the files that it imports.

A file that is imported has a subject of its own with the file's name, as Confluent's serializers have it. Protobuf's own files
(`google/protobuf/…`) have none: every registry knows them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.connectors.formats.protobuf.file_messages import FileMessage, of_text
from penstock.connectors.formats.protobuf.proto_text import proto_text
from penstock.connectors.formats.protobuf.schema import ProtobufSchema, file_proto
from penstock.connectors.formats.registry import Reference, RegisteredSchema, SchemaRegistry

KIND = "PROTOBUF"
_KNOWN = "google/protobuf/"


def register(registry: SchemaRegistry, subject: str, schema: ProtobufSchema) -> int:
    """The id of the schema, and what it imports registered, too.

    Raises:
        SinkError: the registry refuses it, or does not have it and must not get it, or does not answer.
    """
    return registry.register(subject, _registered(schema.descriptor.file, registry.refer))


def check(registry: SchemaRegistry, subject: str, schema: ProtobufSchema) -> None:
    """Whether it could be registered now, as far as that can be told before what it imports is.

    Raises:
        SinkError: it could not.
    """
    file = schema.descriptor.file
    if registry.registers and any(not other.name.startswith(_KNOWN) for other in file.dependencies):
        registry.ping()
    else:
        registry.check(subject, _registered(file, registry.refer))


def messages_of(registry: SchemaRegistry, id: int) -> FileMessage:
    """Of the writer's file.

    Raises:
        SchemaAbsent: there is no schema of this id, or it is not Protobuf.
        SourceError: the registry does not answer, or refuses to.
    """
    return of_text(registry.schema(id, KIND).text)


def _registered(file: Any, refer: Callable[[str, str, RegisteredSchema], Reference]) -> RegisteredSchema:
    references = [
        refer(other.name, other.name, _registered(other, refer))
        for other in file.dependencies
        if not other.name.startswith(_KNOWN)
    ]
    return RegisteredSchema(KIND, proto_text(file_proto(file)), tuple(references))
