"""Protobuf messages as values. What they become is told in `penstock.connectors.formats.protobuf`. Extra `penstock[protobuf]`."""

from penstock.connectors.formats.protobuf.messages import ProtobufMessages, ProtobufMessageWriter
from penstock.connectors.formats.protobuf.schema import ProtobufSchema
from penstock.connectors.formats.registry import SchemaRegistry

__all__ = ["ProtobufDeserializationSchema", "ProtobufSchema", "ProtobufSerializationSchema", "SchemaRegistry"]


class ProtobufDeserializationSchema(ProtobufMessages):
    """Messages as dicts or Rows."""


class ProtobufSerializationSchema(ProtobufMessageWriter):
    """Dicts, Rows, or objects with the message's fields, as messages."""
