"""Parquet files: read as Rows or dicts, and written from rows or columns."""

from __future__ import annotations

from typing import Any, NoReturn

from penstock.common.errors import InvalidJob
from penstock.common.program.one_time_warning import warn_no_effect
from penstock.connectors.formats.bulk import ParquetWriterFactory
from penstock.connectors.formats.parquet import ParquetFormat

__all__ = [
    "AvroParquetReaders",
    "AvroParquetWriters",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
    "ParquetFormat",
    "ParquetWriterFactory",
]


class ParquetColumnarRowInputFormat(ParquetFormat):
    """Input format that reads the columns of a row type.

    Args:
        row_type: `Types.ROW_NAMED(...)`, or any declaration of fields (see `penstock.connectors.formats.shape`).
        batch_size: maximum number of rows that are decoded at once.
        is_utc_timestamp: no effect. Timestamps have the time zone that the file declares.
    """

    def __init__(
        self,
        row_type: Any,
        hadoop_config: Any = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        if hadoop_config is not None:
            warn_no_effect("hadoop_config", "files are read by fsspec; set the job's object store options")
        super().__init__(row_type, batch_size=batch_size, case_sensitive=is_case_sensitive)


class ParquetBulkWriters:
    """Factory of Parquet writers for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_row_type(
        row_type: Any,
        hadoop_config: Any = None,
        utc_timestamp: bool = False,
    ) -> ParquetWriterFactory:
        """Return a factory of writers for rows of a type.

        >>> ParquetBulkWriters.for_row_type({"id": str, "n": int}).shape.names
        ('id', 'n')
        """
        if hadoop_config is not None:
            warn_no_effect("hadoop_config", "files are written by fsspec; set the job's object store options")
        return ParquetWriterFactory(row_type)


class AvroParquetReaders:
    """PyFlink's readers of Parquet with Avro schemas, which Penstock does not support."""

    @staticmethod
    def for_generic_record(schema: Any) -> NoReturn:
        _refuse("AvroParquetReaders", "read Parquet with ParquetColumnarRowInputFormat; it needs no Avro schema")


class AvroParquetWriters:
    """PyFlink's writers of Parquet with Avro schemas, which Penstock does not support."""

    @staticmethod
    def for_generic_record(schema: Any) -> NoReturn:
        _refuse("AvroParquetWriters", "write Parquet with ParquetBulkWriters.for_row_type; it needs no Avro schema")


def _refuse(name: str, remedy: str) -> NoReturn:
    raise InvalidJob(f"{name} is not supported", remedy=remedy)
