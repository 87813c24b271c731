"""Settings of `SqlSink`, which its writer and its committer use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.sql.values import check_values
from penstock.connectors.tables.settings import TableSinkSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.connectors.sql.server import Server


class SqlSinkSettings(TableSinkSettings):
    """The settings of `SqlSink`."""

    server: Server
    dialect: str

    def prepared(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        check_values(columns, self.dialect)
        return columns
