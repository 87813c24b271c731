"""Protobuf schemas in a registry: the text of the message's file, with references to the files that it imports.

Each imported file has a separate subject with the file's name, as with Confluent's serializers. Protobuf's standard files
(`google/protobuf/…`) have no subjects, because every registry knows them.
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
    """Register the schema and its imports, and return the schema's id.

    Raises:
        SinkError: the registry does not answer, refuses the schema, or does not have the schema while
            `registry.registers` is False.
    """
    return registry.register(subject, _registered(schema.descriptor.file, registry.refer))


def check(registry: SchemaRegistry, subject: str, schema: ProtobufSchema) -> None:
    """Check that the schema could be registered now.

    A schema with imports cannot be checked before its imports are registered. Then the function only checks that the registry answers.

    Raises:
        SinkError: the schema could not be registered.
    """
    file = schema.descriptor.file
    if registry.registers and any(not other.name.startswith(_KNOWN) for other in file.dependencies):
        registry.ping()
    else:
        registry.check(subject, _registered(file, registry.refer))


def messages_of(registry: SchemaRegistry, id: int) -> FileMessage:
    """Return the messages of the writer's file.

    Raises:
        SchemaAbsent: the id has no schema, or a schema of another kind.
        SourceError: the registry does not answer, or refuses the request.
    """
    return of_text(registry.schema(id, KIND).text)


def _registered(file: Any, refer: Callable[[str, str, RegisteredSchema], Reference]) -> RegisteredSchema:
    references = [
        refer(other.name, other.name, _registered(other, refer))
        for other in file.dependencies
        if not other.name.startswith(_KNOWN)
    ]
    return RegisteredSchema(KIND, proto_text(file_proto(file)), tuple(references))
