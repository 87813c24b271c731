"""`DeltaSink`: write rows into a Delta table, with one commit per checkpoint.

DeltaSink("s3://lake/means", {"station": str, "day": datetime.date, "celsius": float}, partition_by=["day"], create=True)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.delta.log import DeltaLog
from penstock.connectors.delta.settings import DeltaSinkSettings
from penstock.connectors.delta.target import DeltaTarget
from penstock.connectors.lakehouse.sink import LakehouseSink

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.connectors.file.storage import StorageOptions


class DeltaSink(DeltaSinkSettings, LakehouseSink):
    """A sink that adds rows to a Delta table, with one commit per checkpoint.

    Args:
        path: the table's path, either local or a URL that delta-rs knows.
        fields: the fields of the records (see `formats.shape`). A pyarrow.Schema gives exact types.
        storage_options: options for delta-rs. They override the job's object store settings.
        options: the options of all table formats: `partition_by`, `create`, `add_columns`, `key`, `deletes`, `file_bytes`. For an
            existing table, `partition_by` must be the table's partition columns, or empty.
    """

    def _target(self, table: Any, schema: pa.Schema, options: StorageOptions) -> DeltaTarget:
        return DeltaTarget(self.path, schema, table.metadata().partition_columns, options)

    def _log(self, options: StorageOptions) -> DeltaLog:
        return DeltaLog(self, options)
