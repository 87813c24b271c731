"""The writer of `PostgresSink` for at least once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.postgres.statements import write_rows
from penstock.connectors.tables.row_writers import DirectWriter

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.connectors.postgres.settings import PostgresSinkSettings


class PostgresWriter(DirectWriter):
    def __init__(self, sink: PostgresSinkSettings) -> None:
        super().__init__(sink)
        self._sink = sink

    def _write(self, batches: list[pa.RecordBatch]) -> None:
        with self._connection.transaction():
            write_rows(self._connection, self._sink, batches)
