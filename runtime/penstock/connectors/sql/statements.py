"""Statements that write rows into a table in batches. They insert, replace or delete rows, in the order of arrival."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.common.errors import SinkError
from penstock.connectors.sql.server import package
from penstock.connectors.sql.tables import quoted_table, quoting
from penstock.connectors.sql.values import for_driver
from penstock.connectors.tables.row_writers import GONE

if TYPE_CHECKING:
    from penstock.connectors.sql.settings import SqlSinkSettings

_AT_ONCE = 2_000
"""Maximum number of rows in one call of the driver."""
_DELETED_AT_ONCE = 200
_TRIED_AT_ONCE = 200
_SHOWN = 500
_ESCAPED = (b"\0", b"\n", b"\r", b"\x1a", b'"', b"'", b"\\")


@dataclass(frozen=True)
class Statements:
    """The statements for the table of a sink."""

    names: tuple[str, ...]
    """Names of the columns, in the order of values."""
    key: tuple[str, ...]
    deletes: bool
    insert: str
    table: str
    """Quoted name."""
    columns: str
    """Quoted names."""
    mark: str
    """The placeholder for a value."""
    dialect: str
    same_key: str
    """A condition that compares the columns of the key with values."""

    @classmethod
    def of(cls, connection: Any, sink: SqlSinkSettings, mark: str = "") -> Statements:
        quote, table, database = quoting(connection), quoted_table(connection, sink.table), sink.server.database
        names, key, mark = sink.shape.names, sink.key, mark or database.mark
        columns = ", ".join(map(quote, names))
        insert = f"insert into {table} ({columns}) values ({', '.join([mark] * len(names))})"
        if key:
            insert += " " + database.instead(
                [quote(name) for name in key], [quote(name) for name in names if name not in key]
            )
        same_key = " and ".join(f"{quote(name)} = {mark}" for name in key)
        return cls(names, key, sink.deletes, insert, table, columns, mark, connection.dialect.name, same_key)

    def insert_none(self, no_rows: str) -> str:
        return f"insert into {self.table} ({self.columns}) {no_rows}"

    def delete(self, count: int) -> str:
        return f"delete from {self.table} where " + " or ".join([f"({self.same_key})"] * count)

    def runs(self, batch: pa.RecordBatch) -> Iterator[tuple[bool, list[tuple[Any, ...]]]]:
        """Yield groups of rows to write and of keys to delete. See the function `runs`."""
        return runs(batch, self.dialect, self.names, self.key, deletes=self.deletes)


def write_rows(connection: Any, statements: Statements, batches: Iterable[pa.RecordBatch]) -> None:
    """Write rows in the transaction of the connection. If several rows have the same key, the last one wins.

    Raises:
        SinkError: a row is larger than the server accepts.
    """
    most = connection.info.get("penstock_most_bytes")
    for batch in batches:
        if most is not None and batch.nbytes > most // 4:  # escaped text is at most twice as long
            _check_sizes(batch, most)
        for is_gone, rows in statements.runs(batch):
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
    """Yield groups of consecutive rows to write (False) and of keys to delete (True). Only the last change of each key is included."""
    lists = [for_driver(batch.column(name), dialect) for name in names]
    rows = list(zip(*lists, strict=True))
    if not deletes:
        yield False, rows
        return
    places = [list(names).index(name) for name in key]
    keys = [tuple(row[place] for place in places) for row in rows]
    last = {found: number for number, found in enumerate(keys)}
    gone = batch.column(GONE).to_pylist()
    run: list[tuple[Any, ...]] = []
    is_gone = False
    for number in sorted(last.values()):
        if gone[number] != is_gone and run:
            yield is_gone, run
            run = []
        is_gone = gone[number]
        run.append(keys[number] if is_gone else rows[number])
    if run:
        yield is_gone, run


def _check_sizes(batch: pa.RecordBatch, most: int) -> None:
    for number, row in enumerate(batch.to_pylist()):
        size = sum(_written_size(value) for value in row.values() if isinstance(value, str | bytes))
        if size > most - 10_000:
            raise SinkError(
                f"row {number} of a batch has {size:,} bytes, but the server accepts {most:,} (max_allowed_packet): {shown(row)}",
                remedy="raise the server's limit (set global max_allowed_packet), or filter such rows before the sink",
            )


def _written_size(value: str | bytes) -> int:
    """Return the number of bytes within a statement, in which some characters are escaped with a backslash."""
    raw = value.encode() if isinstance(value, str) else value
    return len(raw) + sum(map(raw.count, _ESCAPED))


def refused_row(connection: Any, statements: Statements, batches: Iterable[pa.RecordBatch]) -> str:
    """Return the first row that the server refuses, as text, or "" if it accepts all of them now. The table does not change."""
    error = package("sqlalchemy.exc").DBAPIError
    with connection.begin() as transaction:
        try:
            for batch in batches:
                for is_gone, rows in statements.runs(batch):
                    for start in range(0, len(rows), _TRIED_AT_ONCE):
                        found = _refused(connection, statements, is_gone, rows[start : start + _TRIED_AT_ONCE], error)
                        if found is not None:
                            names = statements.key if is_gone else statements.names
                            return shown(dict(zip(names, found, strict=True)))
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
    """Return a row as text for an error."""
    fields = (
        f"{name!r}: {text if len(text := repr(value)) <= 100 else text[:100] + '…'}" for name, value in row.items()
    )
    text = "{" + ", ".join(fields) + "}"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
