"""Avro under PyFlink's names: refused, with the way around.

No Avro library is a dependency of Penstock. Files: Parquet keeps types and is read in columns. Messages: decode them in a
`map` with the Avro library of your image.
"""

from __future__ import annotations

from typing import Any, NoReturn

from penstock.common.errors import InvalidJob

_INSTEAD = "use Parquet or JSON lines, or read bytes and decode them in a map with an Avro library of your own"


def refuse_avro(name: str, remedy: str = _INSTEAD) -> NoReturn:
    """
    Raises:
        InvalidJob: always.
    """
    raise InvalidJob(f"{name}: Avro is not supported", remedy=remedy)


class AvroSchema:
    @staticmethod
    def parse_string(json_schema: str) -> NoReturn:
        refuse_avro("AvroSchema")

    @staticmethod
    def parse_file(file_path: str) -> NoReturn:
        refuse_avro("AvroSchema")


class GenericRecordAvroTypeInfo:
    def __init__(self, schema: Any) -> None:
        refuse_avro("GenericRecordAvroTypeInfo")


class AvroInputFormat:
    def __init__(self, path: str, schema: Any) -> None:
        refuse_avro("AvroInputFormat")


class AvroBulkWriters:
    @staticmethod
    def for_generic_record(schema: Any) -> NoReturn:
        refuse_avro("AvroBulkWriters")


class AvroRowDeserializationSchema:
    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        refuse_avro("AvroRowDeserializationSchema")


class AvroRowSerializationSchema:
    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        refuse_avro("AvroRowSerializationSchema")
