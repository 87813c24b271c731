"""How rows get into a table: many at a time, replacing or removing those with their key, in the order in which they came."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.common.errors import SinkError
from penstock.connectors.sql.databases import Database
from penstock.connectors.sql.held_rows import GONE
from penstock.connectors.sql.server import package
from penstock.connectors.sql.tables import quoted_table, quoting
from penstock.connectors.sql.values import for_driver

_AT_ONCE = 2_000
"""Rows of one call of the driver's."""
_DELETED_AT_ONCE = 200
_TRIED_AT_ONCE = 200
_SHOWN = 500
_ESCAPED = (b"\0", b"\n", b"\r", b"\x1a", b'"', b"'", b"\\")


@dataclass(frozen=True)
class Statements:
    """Of one table. `mark`: a value's place in them."""

    insert: str
    table: str
    columns: str
    key: tuple[str, ...]
    """Quoted."""
    mark: str
    dialect: str

    @classmethod
    def of(
        cls, connection: Any, database: Database, table: str, names: Sequence[str], key: Sequence[str], mark: str = ""
    ) -> Statements:
        quote, sql, mark = quoting(connection), quoted_table(connection, table), mark or database.mark
        columns = ", ".join(map(quote, names))
        insert = f"insert into {sql} ({columns}) values ({', '.join([mark] * len(names))})"
        if key:
            insert += " " + database.instead(
                [quote(name) for name in key], [quote(name) for name in names if name not in key]
            )
        return cls(insert, sql, columns, tuple(map(quote, key)), mark, connection.dialect.name)

    def insert_none(self, no_rows: str) -> str:
        return f"insert into {self.table} ({self.columns}) {no_rows}"

    def delete(self, count: int) -> str:
        same = " and ".join(f"{name} = {self.mark}" for name in self.key)
        return f"delete from {self.table} where " + " or ".join([f"({same})"] * count)


def write_rows(
    connection: Any,
    statements: Statements,
    names: Sequence[str],
    key: Sequence[str],
    batches: Iterable[pa.RecordBatch],
    *,
    deletes: bool,
) -> None:
    """In the connection's transaction; of several rows with one key the last one counts.

    Raises:
        SinkError: a row is larger than the server takes.
    """
    most = connection.info.get("penstock_most_bytes")
    for batch in batches:
        if most is not None and batch.nbytes > most // 4:  # twice as large within a statement at the most
            _check_sizes(batch, most)
        for is_gone, rows in runs(batch, statements.dialect, names, key, deletes=deletes):
            _carry_out(connection, statements, is_gone, rows)


def _carry_out(connection: Any, statements: Statements, is_gone: bool, rows: list[tuple[Any, ...]]) -> None:
    if not is_gone:
        for start in range(0, len(rows), _AT_ONCE):
            connection.exec_driver_sql(statements.insert, rows[start : start + _AT_ONCE])
        return
    for start in range(0, len(rows), _DELETED_AT_ONCE):
        some = rows[start : start + _DELETED_AT_ONCE]
        connection.exec_driver_sql(statements.delete(len(some)), tuple(value for row in some for value in row))


def runs(
    batch: pa.RecordBatch, dialect: str, names: Sequence[str], key: Sequence[str], *, deletes: bool
) -> Iterator[tuple[bool, list[tuple[Any, ...]]]]:
    """Rows to be written (False) and keys to be deleted (True), as long as they come one after the other; of each key what came last."""
    lists = [for_driver(batch.column(name), dialect) for name in names]
    rows = list(zip(*lists, strict=True))
    if not deletes:
        yield False, rows
        return
    places = [list(names).index(name) for name in key]
    keys = [tuple(row[place] for place in places) for row in rows]
    last = {found: number for number, found in enumerate(keys)}
    gone = batch.column(GONE).to_pylist()
    held: list[tuple[Any, ...]] = []
    is_gone = False
    for number in sorted(last.values()):
        if gone[number] != is_gone and held:
            yield is_gone, held
            held = []
        is_gone = gone[number]
        held.append(keys[number] if is_gone else rows[number])
    if held:
        yield is_gone, held


def _check_sizes(batch: pa.RecordBatch, most: int) -> None:
    for number, row in enumerate(batch.to_pylist()):
        size = sum(_written_size(value) for value in row.values() if isinstance(value, str | bytes))
        if size > most - 10_000:
            raise SinkError(
                f"row {number} of a batch has {size:,} bytes, and the server takes {most:,} (max_allowed_packet): {shown(row)}",
                remedy="let the server take more (set global max_allowed_packet), or filter such rows out in front of the sink",
            )


def _written_size(value: str | bytes) -> int:
    """Bytes within a statement, where some have a backslash before them."""
    raw = value.encode() if isinstance(value, str) else value
    return len(raw) + sum(map(raw.count, _ESCAPED))


def refused_row(
    connection: Any,
    statements: Statements,
    names: Sequence[str],
    key: Sequence[str],
    batches: Iterable[pa.RecordBatch],
    *,
    deletes: bool,
) -> str:
    """The first row that the server refuses, as text; empty if it refuses none now. Nothing is changed."""
    error = package("sqlalchemy.exc").DBAPIError
    with connection.begin() as transaction:
        try:
            for batch in batches:
                for is_gone, rows in runs(batch, statements.dialect, names, key, deletes=deletes):
                    for start in range(0, len(rows), _TRIED_AT_ONCE):
                        found = _refused(connection, statements, is_gone, rows[start : start + _TRIED_AT_ONCE], error)
                        if found is not None:
                            return shown(dict(zip(key if is_gone else names, found, strict=True)))
            return ""
        finally:
            transaction.rollback()


def _refused(
    connection: Any, statements: Statements, is_gone: bool, rows: list[tuple[Any, ...]], error: type[Exception]
) -> tuple[Any, ...] | None:
    try:
        with connection.begin_nested():
            _carry_out(connection, statements, is_gone, rows)
        return None
    except error:
        if len(rows) == 1:
            return rows[0]
    for row in rows:
        if _refused(connection, statements, is_gone, [row], error) is not None:
            return row
    return None


def shown(row: dict[str, Any]) -> str:
    """A row in an error."""
    fields = (
        f"{name!r}: {text if len(text := repr(value)) <= 100 else text[:100] + '…'}" for name, value in row.items()
    )
    text = "{" + ", ".join(fields) + "}"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
