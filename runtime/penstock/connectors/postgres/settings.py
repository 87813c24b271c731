"""Settings of `PostgresSink`, which its writer and its committer use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.postgres.values import written
from penstock.connectors.tables.settings import TableSinkSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.connectors.postgres.client import Server


class PostgresSinkSettings(TableSinkSettings):
    """The settings of `PostgresSink`."""

    server: Server

    def prepared(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        return written(columns)
