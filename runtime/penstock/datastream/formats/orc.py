"""ORC files: read as Rows or dicts, and written from rows or columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.common.program.one_time_warning import warn_no_effect
from penstock.connectors.formats.orc import OrcFormat, OrcWriterFactory

__all__ = [
    "OrcBulkWriters",
    "OrcFormat",
    "OrcWriterFactory",
]


class OrcBulkWriters:
    """Factory of ORC writers for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_row_type(
        row_type: Any,
        writer_properties: Mapping[str, Any] | None = None,
        hadoop_config: Any = None,
    ) -> OrcWriterFactory:
        """Return a factory of writers for rows of a type.

        Args:
            row_type: `Types.ROW_NAMED(...)`, or any declaration of fields (see `penstock.connectors.formats.shape`).
            writer_properties: `orc.compress` (SNAPPY, ZSTD, ZLIB, LZ4, NONE) and `orc.stripe.size` (bytes).

        >>> OrcBulkWriters.for_row_type({"id": str, "n": int}, {"orc.compress": "SNAPPY"}).compression
        'snappy'
        """
        if hadoop_config is not None:
            warn_no_effect("hadoop_config", "files are written by fsspec; set the job's object store options")
        return OrcWriterFactory.by_properties(row_type, writer_properties or {})
