"""Write rows into a table with COPY. If rows may replace other rows, COPY writes them into a temporary table first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.connectors.postgres.client import quoted
from penstock.connectors.postgres.values import json_of
from penstock.connectors.tables.row_writers import GONE

if TYPE_CHECKING:
    from penstock.connectors.postgres.settings import PostgresSinkSettings

_SCRATCH = '"penstock_rows"'


def write_rows(connection: Any, sink: PostgresSinkSettings, batches: Iterable[pa.RecordBatch]) -> None:
    """Write rows in the transaction of the connection. If several rows have the same key, the last one wins.

    Args:
        batches: the rows. If the sink's `deletes` is set, they have the extra column `GONE`.
    """
    table, names, key = quoted(sink.table), sink.shape.names, sink.key
    columns = ", ".join(map(quoted, names))
    if not key:
        _copy(connection, f"copy {table} ({columns}) from stdin", batches)
        return
    connection.execute(
        f"create temp table if not exists {_SCRATCH} on commit drop as select {columns} from {table} with no data"
    )
    order = quoted(
        next(name for name in ("penstock_row", *map("penstock_row_{}".format, range(9999))) if name not in names)
    )
    connection.execute(f"alter table {_SCRATCH} add column {order} bigserial")
    copied_columns = columns
    if sink.deletes:
        connection.execute(f"alter table {_SCRATCH} add column {quoted(GONE)} boolean")
        copied_columns = f"{columns}, {quoted(GONE)}"
    _copy(connection, f"copy {_SCRATCH} ({copied_columns}) from stdin", batches)
    keys = ", ".join(map(quoted, key))
    last = f"(select distinct on ({keys}) {copied_columns} from {_SCRATCH} order by {keys}, {order} desc) penstock_last"
    if sink.deletes:
        same = " and ".join(f"t.{quoted(name)} = penstock_last.{quoted(name)}" for name in key)
        connection.execute(f"delete from {table} t using {last} where {quoted(GONE)} and {same}")
    changed = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in names if name not in key)
    action = f"do update set {changed}" if changed else "do nothing"
    kept = f" where not {quoted(GONE)}" if sink.deletes else ""
    connection.execute(
        f"insert into {table} ({columns}) select {columns} from {last}{kept} on conflict ({keys}) {action}"
    )
    connection.execute(f"drop table {_SCRATCH}")


def _copy(connection: Any, statement: str, batches: Iterable[pa.RecordBatch]) -> None:
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for batch in batches:
            lists = [_values(column) for column in batch.columns]
            for row in zip(*lists, strict=True):
                copy.write_row(row)


def _values(column: pa.Array) -> list[Any]:
    """Return the values for COPY. Structs and maps, which committables of earlier versions contain, become JSON."""
    kind = column.type
    values: list[Any] = column.to_pylist(maps_as_pydicts="lossy") if pa.types.is_map(kind) else column.to_pylist()
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return [None if value is None else json_of(value) for value in values]
    return values
