"""Avro under PyFlink's names, and Confluent's schema registry under the names of Flink's Java API. Extra `penstock-streaming[avro]`.

For messages of a KafkaSource or a KafkaSink, use the schemas below. For files, use `AvroFormat` in a FileSource and `AvroBulkWriters` in
a FileSink.
"""

from __future__ import annotations

from typing import Any

from penstock.common.errors import InvalidJob
from penstock.connectors.formats.avro.files import AvroFormat, AvroWriterFactory
from penstock.connectors.formats.avro.messages import AvroMessages, AvroMessageWriter
from penstock.connectors.formats.avro.schema import AvroSchema
from penstock.connectors.formats.registry import SchemaRegistry

__all__ = [
    "AvroBulkWriters",
    "AvroDeserializationSchema",
    "AvroFormat",
    "AvroInputFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "AvroSerializationSchema",
    "ConfluentRegistryAvroDeserializationSchema",
    "ConfluentRegistryAvroSerializationSchema",
    "GenericRecordAvroTypeInfo",
    "SchemaRegistry",
]


class AvroDeserializationSchema(AvroMessages):
    """Deserialization schema that converts messages to dicts."""

    @staticmethod
    def for_generic(schema: AvroSchema) -> AvroDeserializationSchema:
        return AvroDeserializationSchema(schema)


class AvroSerializationSchema(AvroMessageWriter):
    """Serialization schema that converts dicts, Rows, or objects with the schema's fields to messages."""

    @staticmethod
    def for_generic(schema: AvroSchema) -> AvroSerializationSchema:
        return AvroSerializationSchema(schema)


class ConfluentRegistryAvroDeserializationSchema(AvroMessages):
    """Deserialization schema for messages that contain a schema id. It returns dicts of the reader schema. The messages may have other
    versions of this schema."""

    @staticmethod
    def for_generic(schema: AvroSchema, registry: str | SchemaRegistry) -> ConfluentRegistryAvroDeserializationSchema:
        """Return the deserialization schema.

        Args:
            registry: URL of the registry, or a `SchemaRegistry` with further settings.
        """
        return ConfluentRegistryAvroDeserializationSchema(schema, registry=SchemaRegistry.of(registry))


class ConfluentRegistryAvroSerializationSchema(AvroMessageWriter):
    """Serialization schema that writes the schema id at the beginning of each message."""

    @staticmethod
    def for_generic(
        subject: str, schema: AvroSchema, registry: str | SchemaRegistry
    ) -> ConfluentRegistryAvroSerializationSchema:
        """Return the serialization schema.

        Args:
            subject: name under which the registry has the schema, by convention `TOPIC-value`.
        """
        return ConfluentRegistryAvroSerializationSchema(schema, registry=SchemaRegistry.of(registry), subject=subject)


class AvroRowDeserializationSchema(AvroMessages):
    """Deserialization schema that converts messages to Rows.

    >>> schema = AvroRowDeserializationSchema(avro_schema_string='{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]}')
    >>> schema.deserialize(b"\\x02")
    Row(n=1)
    """

    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        super().__init__(_schema_of(record_class, avro_schema_string), rows=True)


class AvroRowSerializationSchema(AvroMessageWriter):
    """Serialization schema that converts Rows to messages."""

    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        super().__init__(_schema_of(record_class, avro_schema_string))


def _schema_of(record_class: str | None, text: str | None) -> AvroSchema:
    if record_class is not None or text is None:
        raise InvalidJob(
            "an Avro schema cannot be a Java class", remedy="pass the text of the schema: avro_schema_string='…'"
        )
    return AvroSchema(text)


class AvroBulkWriters:
    """Factory of Avro writers for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> AvroWriterFactory:
        return AvroWriterFactory(schema)


class AvroInputFormat:
    """PyFlink's class for Avro input formats, which Penstock does not support. Input formats are Flink's old API."""

    def __init__(self, path: str, schema: Any) -> None:
        raise InvalidJob(
            "AvroInputFormat is not supported",
            remedy="use env.from_source(FileSource.for_bulk_file_format(AvroFormat(schema), path).build(), …)",
        )


class GenericRecordAvroTypeInfo:
    """PyFlink's type of generic records, which Penstock does not support. Avro records are dicts."""

    def __init__(self, schema: Any) -> None:
        raise InvalidJob(
            "GenericRecordAvroTypeInfo is not supported: records of Avro are dicts, Rows or objects of your classes",
            remedy="remove the type, or declare the fields as a NamedTuple, a dataclass or Types.ROW_NAMED",
        )
