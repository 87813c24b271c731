"""Settings of `DeltaSink`, and their check against the table. The sink's committer uses these settings, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from penstock.common.errors import InvalidJob, SinkError
from penstock.connectors.delta.table import (
    check_writable,
    exists,
    location_of,
    open_table,
    package,
    schema_of,
    storage_options_of,
)
from penstock.connectors.formats.shape import Declaration
from penstock.connectors.lakehouse.fields import Fit, fit
from penstock.connectors.lakehouse.settings import LakehouseSinkOptions, LakehouseSinkSettings

if TYPE_CHECKING:
    from penstock.connectors.file.storage import StorageOptions


class DeltaSinkSettings(LakehouseSinkSettings):
    """The settings of a `DeltaSink`. The docstring of that class describes the arguments."""

    def __init__(
        self,
        path: str,
        fields: Declaration,
        *,
        storage_options: dict[str, str] | None = None,
        **options: Unpack[LakehouseSinkOptions],
    ) -> None:
        package()
        self.path = location_of(path)
        super().__init__(self.path, fields, **options)
        self.storage_options = dict(storage_options or {})
        if set(self.partition_by) >= set(self.shape.names):
            raise InvalidJob(
                f"partition_by={list(self.partition_by)} has all fields of the records: {', '.join(self.shape.names)}",
                remedy="keep at least one field that is not a partition column",
            )

    def delta_options(self, options: StorageOptions) -> dict[str, str]:
        """Return options for delta-rs."""
        return storage_options_of(self.path, options, self.storage_options)

    def exists(self, options: StorageOptions) -> bool:
        return exists(self.path, self.delta_options(options), SinkError)

    def open_table(self, options: StorageOptions) -> Any:
        return open_table(self.path, self.delta_options(options), SinkError)

    def new_schema(self) -> Any:
        return package().Schema.from_arrow(self.shape.schema)

    def fit_to(self, table: Any, *, adds_columns: bool = False) -> Fit:
        check_writable(table, self.path, changes_rows=bool(self.key))
        partition_by = tuple(table.metadata().partition_columns)
        if self.partition_by and self.partition_by != partition_by:
            raise InvalidJob(
                f"Delta table {self.path!r} is partitioned by {list(partition_by)}, the sink by {list(self.partition_by)}",
                remedy="leave partition_by out, or name the table's columns in their order",
            )
        return fit(self.shape.schema, schema_of(table), self.path, adds_columns=adds_columns)
