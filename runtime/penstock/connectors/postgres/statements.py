"""How rows get into a table: COPY, and from a scratch table where they may replace others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from penstock.connectors.postgres.client import quoted
from penstock.connectors.postgres.values import json_of
from penstock.connectors.sql.held_rows import GONE

_SCRATCH = '"penstock_rows"'


def write_rows(
    connection: Any,
    table: str,
    names: Sequence[str],
    key: Sequence[str],
    batches: Iterable[pa.RecordBatch],
    *,
    deletes: bool = False,
) -> int:
    """In the connection's transaction; of several rows with one key the last one counts.

    Args:
        table: its name in SQL.
        key: columns by which rows replace those that are there; empty: rows are added.
        deletes: batches have one more column, `GONE`.

    Returns:
        How many rows were sent.
    """
    columns = ", ".join(map(quoted, names))
    if not key:
        return _copy(connection, f"copy {table} ({columns}) from stdin", batches)
    connection.execute(
        f"create temp table if not exists {_SCRATCH} on commit drop as select {columns} from {table} with no data"
    )
    order = quoted(
        next(name for name in ("penstock_row", *map("penstock_row_{}".format, range(9999))) if name not in names)
    )
    connection.execute(f"alter table {_SCRATCH} add column {order} bigserial")
    given = columns
    if deletes:
        connection.execute(f"alter table {_SCRATCH} add column {quoted(GONE)} boolean")
        given = f"{columns}, {quoted(GONE)}"
    count = _copy(connection, f"copy {_SCRATCH} ({given}) from stdin", batches)
    keys = ", ".join(map(quoted, key))
    last = f"(select distinct on ({keys}) {given} from {_SCRATCH} order by {keys}, {order} desc) penstock_last"
    if deletes:
        same = " and ".join(f"t.{quoted(name)} = penstock_last.{quoted(name)}" for name in key)
        connection.execute(f"delete from {table} t using {last} where {quoted(GONE)} and {same}")
    changed = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in names if name not in key)
    action = f"do update set {changed}" if changed else "do nothing"
    stays = f" where not {quoted(GONE)}" if deletes else ""
    connection.execute(
        f"insert into {table} ({columns}) select {columns} from {last}{stays} on conflict ({keys}) {action}"
    )
    connection.execute(f"drop table {_SCRATCH}")
    return count


def _copy(connection: Any, statement: str, batches: Iterable[pa.RecordBatch]) -> int:
    count = 0
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for batch in batches:
            lists = [_values(column) for column in batch.columns]
            for row in zip(*lists, strict=True):
                copy.write_row(row)
            count += batch.num_rows
    return count


def _values(column: pa.Array) -> list[Any]:
    """As Postgres takes them; structs and maps, which votes of earlier versions have, as JSON."""
    kind = column.type
    values: list[Any] = column.to_pylist(maps_as_pydicts="lossy") if pa.types.is_map(kind) else column.to_pylist()
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return [None if value is None else json_of(value) for value in values]
    return values
