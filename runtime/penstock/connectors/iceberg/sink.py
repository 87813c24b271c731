"""`IcebergSink`: write rows into an Iceberg table, with one snapshot per checkpoint.

lake = {"name": "lake", "type": "sql", "uri": "sqlite:////data/catalog.db", "warehouse": "file:///data/warehouse"}
IcebergSink(lake, "weather.means", {"station": str, "day": datetime.date, "celsius": float}, partition_by=["day"], create=True)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.iceberg.log import IcebergLog
from penstock.connectors.iceberg.settings import IcebergSinkSettings
from penstock.connectors.iceberg.target import IcebergTarget
from penstock.connectors.lakehouse.sink import LakehouseSink

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.connectors.file.storage import StorageOptions


class IcebergSink(IcebergSinkSettings, LakehouseSink):
    """A sink that adds rows to an Iceberg table, with one snapshot per checkpoint.

    Args:
        catalog: the catalog's properties (see the package's docstring).
        table: the name, as "namespace.table".
        fields: the fields of the records (see `formats.shape`). A pyarrow.Schema gives exact types.
        options: the options of all table formats: `partition_by`, `create`, `add_columns`, `key`, `deletes`, `file_bytes`. An existing
            table keeps its own partitioning, with any transform. `create` also creates the namespace.
    """

    def _target(self, table: Any, schema: pa.Schema, options: StorageOptions) -> IcebergTarget:
        return IcebergTarget(table, schema)

    def _log(self, options: StorageOptions) -> IcebergLog:
        return IcebergLog(self, options)
