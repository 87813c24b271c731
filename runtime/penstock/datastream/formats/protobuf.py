"""Protobuf messages as values. See `penstock.connectors.formats.protobuf`. Extra `penstock-streaming[protobuf]`."""

from penstock.connectors.formats.protobuf.messages import ProtobufMessages, ProtobufMessageWriter
from penstock.connectors.formats.protobuf.schema import ProtobufSchema
from penstock.connectors.formats.registry import SchemaRegistry

__all__ = ["ProtobufDeserializationSchema", "ProtobufSchema", "ProtobufSerializationSchema", "SchemaRegistry"]


class ProtobufDeserializationSchema(ProtobufMessages):
    """Deserialization schema that converts messages to dicts or Rows."""


class ProtobufSerializationSchema(ProtobufMessageWriter):
    """Serialization schema that converts dicts, Rows, or objects with the message's fields to messages."""
