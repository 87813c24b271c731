"""The files that a subtask writes for an Iceberg table, and their manifest entries."""

from __future__ import annotations

import base64
import decimal
import math
import time
import uuid
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.errors import SinkError
from penstock.connectors.file.storage import explained, is_local, local_path
from penstock.connectors.iceberg.table import package
from penstock.connectors.lakehouse.files import DurableFile, TableTarget
from penstock.connectors.lakehouse.partitions import Key, partitions_of

_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")


class IcebergTarget(TableTarget):
    """The Iceberg table that a subtask writes files for.

    Args:
        table: a pyiceberg Table.
        schema: the written columns, with the table's types and fields' ids.
    """

    def __init__(self, table: Any, schema: pa.Schema) -> None:
        self.schema = self.file_schema = schema
        self._table = table
        self._metadata = table.metadata
        self._spec = table.spec()
        iceberg = table.schema()
        self._partition_by = [
            (
                iceberg.find_column_name(field.source_id),
                field.transform.pyarrow_transform(iceberg.find_type(field.source_id)),
            )
            for field in self._spec.fields
        ]
        arrow = package("pyiceberg.io.pyarrow")
        self._plan = arrow.compute_statistics_plan(iceberg, table.metadata.properties)
        self._ids = arrow.parquet_path_to_id_mapping(iceberg)
        self._locations = table.location_provider()

    def partition(self, rows: pa.RecordBatch) -> Iterable[tuple[Key, pa.RecordBatch]]:
        return partitions_of(
            rows, [_values(transform(self._column(rows, name))) for name, transform in self._partition_by]
        )

    def _column(self, rows: pa.RecordBatch, name: str) -> pa.Array:
        index = rows.schema.get_field_index(name)
        if index >= 0:
            return rows.column(index)
        kind = package("pyiceberg.io.pyarrow").schema_to_pyarrow(self._table.schema().find_type(name))
        return pa.nulls(rows.num_rows, kind)

    def _key(self, key: Key) -> Any:
        partitioning = package("pyiceberg.partitioning")
        values = [
            partitioning.PartitionFieldValue(field=field, value=value)
            for field, value in zip(self._spec.fields, key, strict=True)
        ]
        return partitioning.PartitionKey(field_values=values, partition_spec=self._spec, schema=self._table.schema())

    def create(self, key: Key, name: str) -> tuple[str, Any]:
        path = self._locations.new_data_location(data_file_name=name, partition_key=self._key(key) if key else None)
        with explained(path, "write", SinkError):
            if is_local(path):
                return path, DurableFile(local_path(path))
            return path, self._table.io.new_output(path).create()

    def describe(self, key: Key, path: str, size: int, metadata: pq.FileMetaData) -> dict[str, Any]:
        arrow = package("pyiceberg.io.pyarrow")
        statistics = arrow.data_file_statistics_from_parquet_metadata(
            parquet_metadata=metadata, stats_columns=self._plan, parquet_column_mapping=self._ids
        )
        entry = statistics.to_serialized_dict()
        record = self._key(key).partition if key else ()
        return {
            "path": path,
            "size": size,
            "modified": int(time.time() * 1000),
            "spec": self._spec.spec_id,
            "partition": [_as_json(record[index]) for index in range(len(key))],
            "records": entry["record_count"],
            "splits": entry["split_offsets"],
            **{name: _pairs(entry[name]) for name in _COUNTS},
            **{name: [(id, base64.b64encode(bound).decode()) for id, bound in entry[name].items()] for name in _BOUNDS},
        }

    def remove(self, path: str) -> None:
        try:
            self._table.io.delete(path)
        except FileNotFoundError:
            return


def data_file(file: dict[str, Any]) -> Any:
    """Convert the entry from `IcebergTarget.describe` to a pyiceberg DataFile."""
    manifest, typedef = package("pyiceberg.manifest"), package("pyiceberg.typedef")
    return manifest.DataFile.from_args(
        content=manifest.DataFileContent.DATA,
        file_path=file["path"],
        file_format=manifest.FileFormat.PARQUET,
        partition=typedef.Record(*map(_from_json, file["partition"])),
        file_size_in_bytes=file["size"],
        sort_order_id=None,
        spec_id=file["spec"],
        equality_ids=None,
        key_metadata=None,
        record_count=file["records"],
        split_offsets=file["splits"],
        **{name: {int(id): count for id, count in file[name]} for name in _COUNTS},
        **{name: {int(id): base64.b64decode(bound) for id, bound in file[name]} for name in _BOUNDS},
    )


def _pairs(counts: dict[int, int]) -> list[tuple[int, int]]:
    return list(counts.items())


def _values(array: Any) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _as_json(value: Any) -> Any:
    """Convert a value for the checkpoint. If JSON has no type for the value, it becomes a dict that names the type."""
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, uuid.UUID):
        return {"uuid": str(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return {"decimal": str(value)} if isinstance(value, decimal.Decimal) else value


def _from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "bytes" in value:
        return base64.b64decode(value["bytes"])
    if "uuid" in value:
        return uuid.UUID(value["uuid"])
    if "float" in value:
        return float(value["float"])
    return decimal.Decimal(value["decimal"])
