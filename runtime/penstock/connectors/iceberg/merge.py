"""Replace a table's rows by key: rewrite the files that hold some of these keys (copy on write).

The scan skips files whose key bounds or partition exclude the keys. For other files, it first reads only the key columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.iceberg.table import package, schema_of
from penstock.connectors.iceberg.target import IcebergTarget
from penstock.connectors.lakehouse.files import FILE_BYTES, TableWriter
from penstock.connectors.lakehouse.keys import KeyIndex
from penstock.connectors.lakehouse.upserts import Changes, nullable
from penstock.connectors.tables.row_writers import GONE

_FEW = 200
"""Maximum number of keys that go into the filter one by one. This lets pyiceberg exclude partitions of any
transform."""
_BATCH_ROWS = 100_000


@dataclass
class Merge:
    """The files to commit: files that the commit removes from the table, and files that it adds (see `IcebergTarget.describe`)."""

    removed: list[Any] = field(default_factory=list)
    added: list[dict[str, Any]] = field(default_factory=list)


def merge(table: Any, changes: Changes, written: pa.Schema, prefix: str) -> Merge:
    """Write the files that result from the changes. No table lists these files yet.

    Args:
        table: a pyiceberg Table.
        written: the columns of the changes, with the table's types.
        prefix: the prefix of file names.
    """
    found = Merge()
    schema = schema_of(table)
    writer = TableWriter(IcebergTarget(table, schema), "", None, prefix, FILE_BYTES)
    rows = changes.as_columns(written)
    values = rows.drop_columns(GONE)  # the table may have a column of this name
    index = KeyIndex(changes.key, rows)
    is_there = np.zeros(rows.num_rows, bool)
    gone = np.asarray(changes.gone)
    try:
        for task in table.scan(row_filter=_filter(changes)).plan_files():
            changes.check_wanted()
            if not _holds(table, task, changes.key, index):
                continue
            for batch in _batches(table, task, None):
                numbers = index.find(batch)
                met = np.asarray(numbers.is_valid())
                is_there[np.asarray(numbers.drop_null())] = True
                writer.write_columns(_aligned(batch.filter(pa.array(~met)), schema))
                is_kept = met.copy()
                is_kept[met] = ~gone[np.asarray(numbers.drop_null())]
                old = batch.filter(pa.array(is_kept))
                writer.write_columns(_aligned(_replaced(old, values, numbers.filter(pa.array(is_kept))), schema))
            found.removed.append(task.file)
        new = rows.filter(pa.array(~(is_there | gone))).drop_columns(GONE)
        for batch in new.to_batches():
            writer.write_columns(_aligned(batch, schema))
        for vote in writer.prepare_commit(0):
            found.added += vote["files"]
    finally:
        writer.close()
    return found


def _holds(table: Any, task: Any, key: tuple[str, ...], index: KeyIndex) -> bool:
    return any(index.find(batch).null_count < batch.num_rows for batch in _batches(table, task, key))


def _batches(table: Any, task: Any, names: tuple[str, ...] | None) -> Any:
    """Yield the rows of a file that are not deleted, with the current names of the table's columns."""
    schema = table.schema() if names is None else table.schema().select(*names)
    expressions = package("pyiceberg.expressions")
    scan = package("pyiceberg.io.pyarrow").ArrowScan(table.metadata, table.io, schema, expressions.AlwaysTrue())
    for batch in scan.to_record_batches([task]):
        for begin in range(0, batch.num_rows, _BATCH_ROWS):
            yield batch.slice(begin, _BATCH_ROWS)


def _replaced(old: pa.RecordBatch, rows: pa.Table, numbers: pa.Array) -> pa.RecordBatch:
    """Return rows of the table with new values. `numbers` has, for each row, the number of the change that replaces it."""
    columns = [
        column if (at := rows.schema.get_field_index(name)) < 0 else rows.column(at).combine_chunks().take(numbers)
        for name, column in zip(old.schema.names, old.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=old.schema.names)


def _aligned(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the table's columns. A column that the batch does not have is null."""
    loose = nullable(schema)
    columns = [
        pa.nulls(batch.num_rows, column.type)
        if (at := batch.schema.get_field_index(column.name)) < 0
        else batch.column(at).cast(column.type)
        for column in loose
    ]
    return pa.RecordBatch.from_arrays(columns, schema=loose)


def _filter(changes: Changes) -> Any:
    """Return a filter that matches every file that may hold one of the keys."""
    expressions = package("pyiceberg.expressions")
    found: Any = expressions.AlwaysTrue()
    for name in changes.key:
        bounds = changes.bounds(name)
        if bounds is None:
            continue
        distinct = pc.unique(changes.rows.column(name))
        if len(distinct) <= _FEW:
            found = expressions.And(found, expressions.In(name, tuple(distinct.to_pylist())))
        else:
            least, greatest = bounds
            within = expressions.And(
                expressions.GreaterThanOrEqual(name, least), expressions.LessThanOrEqual(name, greatest)
            )
            found = expressions.And(found, within)
    return found
