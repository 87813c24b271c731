"""Rows that replace, or delete, those of a table that have the same key.

They wait in the checkpoint. When it is complete the JobManager has the table changed: files that hold rows with these keys are written
anew without them (copy on write), so that every reader of the format sees each key once, and one commit puts all in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.errors import RecordFormatError
from penstock.connectors.lakehouse.fields import as_columns, fit
from penstock.connectors.lakehouse.keys import last_of_each_key
from penstock.connectors.sql.held_rows import GONE, StagingWriter

if TYPE_CHECKING:
    from penstock.connectors.sink import WriterContext


@dataclass(frozen=True)
class Changes:
    """What a checkpoint does to a table.

    `rows`: of each key one, with a column `GONE` of those that are deleted. `check_wanted`: raises if the commit was given up.
    """

    key: tuple[str, ...]
    rows: pa.Table
    check_wanted: Callable[[], None] = lambda: None

    @classmethod
    def of(
        cls, key: tuple[str, ...], tables: Iterable[pa.Table], check_wanted: Callable[[], None] = lambda: None
    ) -> Changes:
        """
        Args:
            tables: rows as they came, those of all subtasks; with a column `GONE` or without.
        """
        return cls(key, last_of_each_key(key, map(_marked, tables)), check_wanted)

    @property
    def gone(self) -> pa.Array:
        """Which of the rows are deleted."""
        return self.rows.column(GONE).combine_chunks()

    def columns_in(self, table: pa.Schema, name: str) -> pa.Schema:
        """The columns that the rows have, as the table has them now. Those that wait may have others than what the sink declares since.

        Raises:
            InvalidJob: they do not fit into the table of this name any more.
        """
        return fit(self.rows.drop_columns(GONE).schema, table, name).schema

    def as_columns(self, schema: pa.Schema) -> pa.Table:
        """The rows with these columns and types, and `GONE`."""
        batches = self.rows.drop_columns(GONE).combine_chunks().to_batches()
        loose = nullable(schema)
        table = pa.Table.from_batches([as_columns(batch, loose) for batch in batches], loose)
        return table.append_column(GONE, self.gone)

    def bounds(self, name: str) -> tuple[Any, Any] | None:
        """The least and the greatest value of a column of the key, where files can be told by them; else None."""
        kind = self.rows.schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date32(kind)):
            return None
        found = pc.min_max(self.rows.column(name))
        return found["min"].as_py(), found["max"].as_py()


class ChangesWriter(StagingWriter):
    """Holds rows until the barrier.

    Args:
        sink: has `shape`, `key` and `deletes`.
        schema: what is written, with the table's types.
    """

    def __init__(self, sink: Any, app: str, context: WriterContext, schema: pa.Schema) -> None:
        super().__init__(sink, app, context.subtask)
        self._key = sink.key
        self._schema = schema
        self._loose = nullable(schema)

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        staged = super().prepare_commit(checkpoint_id)
        for piece in staged:
            piece.about["key"] = list(self._key)
        return staged

    def _hold(self, columns: pa.RecordBatch) -> None:
        rows = as_columns(columns, self._loose)
        for name in self._key:
            if rows.column(name).null_count:
                raise RecordFormatError(
                    f"a record has nothing for {name!r}, which is in the table's key",
                    remedy="filter such records out: a row without a key can be found by nobody",
                )
        for column, field in zip(rows.columns, self._loose, strict=True):
            _check_times(column, field)
        if GONE not in columns.schema.names:
            as_columns(rows, self._schema)
            super()._hold(rows)
            return
        gone = columns.column(GONE)
        as_columns(rows.filter(pc.invert(gone)), self._schema)
        super()._hold(pa.RecordBatch.from_arrays([*rows.columns, gone], names=[*rows.schema.names, GONE]))


def nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns, which may all be null: of rows that are deleted only the key has to be there."""
    return pa.schema([field.with_nullable(nullable=True) for field in schema])


def _check_times(column: pa.Array, field: pa.Field) -> None:
    """What tells files by their least and greatest value takes Python's dates: a commit would fail whenever it is tried."""
    if pa.types.is_date(field.type) or (pa.types.is_timestamp(field.type) and field.type.unit != "ns"):
        found = pc.min_max(column)
        try:
            found.as_py()
        except (OverflowError, ValueError) as error:
            raise RecordFormatError(
                f"a record has a {field.type} for {field.name!r} that is not in the years 1 to 9999",
                remedy="give such records another date, or none, before the sink",
            ) from error


def _marked(rows: pa.Table) -> pa.Table:
    if GONE in rows.schema.names:
        return rows
    return rows.append_column(GONE, pa.repeat(pa.scalar(value=False), rows.num_rows))
