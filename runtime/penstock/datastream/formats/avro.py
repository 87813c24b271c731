"""Avro under PyFlink's names, and Confluent's schema registry under those of Flink's Java API. Extra `penstock[avro]`.

Messages: the schemas below, for a KafkaSource or a KafkaSink. Files: `AvroFormat` for a FileSource, `AvroBulkWriters` for a FileSink.
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
    """Messages as dicts."""

    @staticmethod
    def for_generic(schema: AvroSchema) -> AvroDeserializationSchema:
        return AvroDeserializationSchema(schema)


class AvroSerializationSchema(AvroMessageWriter):
    """Dicts, Rows, or objects with the schema's fields, as messages."""

    @staticmethod
    def for_generic(schema: AvroSchema) -> AvroSerializationSchema:
        return AvroSerializationSchema(schema)


class ConfluentRegistryAvroDeserializationSchema(AvroMessages):
    """Messages that name their schema by an id, as dicts of a schema that may be another version."""

    @staticmethod
    def for_generic(schema: AvroSchema, registry: str | SchemaRegistry) -> ConfluentRegistryAvroDeserializationSchema:
        """
        Args:
            registry: its URL, or a `SchemaRegistry` with what else is to be said.
        """
        return ConfluentRegistryAvroDeserializationSchema(schema, registry=SchemaRegistry.of(registry))


class ConfluentRegistryAvroSerializationSchema(AvroMessageWriter):
    """Records as messages that begin with the id of their schema."""

    @staticmethod
    def for_generic(
        subject: str, schema: AvroSchema, registry: str | SchemaRegistry
    ) -> ConfluentRegistryAvroSerializationSchema:
        """
        Args:
            subject: `TOPIC-value` by the registry's custom.
        """
        return ConfluentRegistryAvroSerializationSchema(schema, registry=SchemaRegistry.of(registry), subject=subject)


class AvroRowDeserializationSchema(AvroMessages):
    """Messages as Rows.

    >>> schema = AvroRowDeserializationSchema(avro_schema_string='{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]}')
    >>> schema.deserialize(b"\\x02")
    Row(n=1)
    """

    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        super().__init__(_schema_of(record_class, avro_schema_string), rows=True)


class AvroRowSerializationSchema(AvroMessageWriter):
    """Rows as messages."""

    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        super().__init__(_schema_of(record_class, avro_schema_string))


def _schema_of(record_class: str | None, text: str | None) -> AvroSchema:
    if record_class is not None or text is None:
        raise InvalidJob("an Avro schema by a class of Java's", remedy="give the schema's text: avro_schema_string='…'")
    return AvroSchema(text)


class AvroBulkWriters:
    """Makes Avro writers for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> AvroWriterFactory:
        return AvroWriterFactory(schema)


class AvroInputFormat:
    """Refused: input formats are Flink's old way."""

    def __init__(self, path: str, schema: Any) -> None:
        raise InvalidJob(
            "AvroInputFormat is not supported",
            remedy="env.from_source(FileSource.for_bulk_file_format(AvroFormat(schema), path).build(), …)",
        )


class GenericRecordAvroTypeInfo:
    """Refused: records are dicts."""

    def __init__(self, schema: Any) -> None:
        raise InvalidJob(
            "GenericRecordAvroTypeInfo is not supported: records of Avro are dicts, Rows or objects of yours",
            remedy="leave the type out, or declare a NamedTuple, dataclass or Types.ROW_NAMED(...) with the fields",
        )
