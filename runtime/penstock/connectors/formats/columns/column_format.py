"""The settings of formats whose files store columns: Parquet and ORC."""

from __future__ import annotations

from typing import Any

from penstock.connectors.formats.record_format import BulkFormat
from penstock.connectors.formats.shape import Declaration, RecordShape


class ColumnFormat(BulkFormat):
    """A format that reads the declared columns of files. If no columns are declared, it reads all columns as dicts."""

    def __init__(self, fields: Declaration, record: str | None, *, case_sensitive: bool) -> None:
        super().__init__()
        self.shape = None if fields is None else RecordShape.of(fields, record)
        if self.shape is not None:
            assert self.shape.schema
        self.record = record
        self.case_sensitive = case_sensitive

    def produced_type(self) -> Any:
        return None if self.shape is None else self.shape.produced_type()
