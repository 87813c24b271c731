"""Settings of `IcebergSink`, and their check against the table. The sink's committer uses these settings, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from penstock.common.errors import InvalidJob, SinkError
from penstock.connectors.formats.shape import Declaration
from penstock.connectors.iceberg.table import check_name, check_writable, exists, open_table, package, schema_of
from penstock.connectors.lakehouse.fields import Fit, fit
from penstock.connectors.lakehouse.settings import LakehouseSinkOptions, LakehouseSinkSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from penstock.connectors.file.storage import StorageOptions


class IcebergSinkSettings(LakehouseSinkSettings):
    """The settings of an `IcebergSink`. The docstring of that class describes the arguments."""

    def __init__(
        self, catalog: Mapping[str, str], table: str, fields: Declaration, **options: Unpack[LakehouseSinkOptions]
    ) -> None:
        package()
        check_name(table)
        self.catalog = dict(catalog)
        self.table = table
        super().__init__(table, fields, **options)

    def exists(self, options: StorageOptions) -> bool:
        return exists(self.catalog, self.table, options)

    def open_table(self, options: StorageOptions) -> Any:
        return open_table(self.catalog, self.table, options, SinkError)

    def fit_to(self, table: Any, *, adds_columns: bool = False) -> Fit:
        check_writable(table)
        return fit(self.shape.schema, schema_of(table), self.table, adds_columns=adds_columns)

    def new_schema(self) -> pa.Schema:
        schema = self.shape.schema
        try:
            package("pyiceberg.io.pyarrow")._pyarrow_to_schema_without_ids(schema)
        except Exception as error:
            raise InvalidJob(
                f"the fields {', '.join(f'{f.name}: {f.type}' for f in schema)} cannot become columns of an Iceberg table: {error}",
                remedy="declare types that Iceberg supports, in a pyarrow.Schema",
            ) from error
        return schema
