"""Rows that replace or delete the rows of a table with the same key.

The checkpoint stores these rows. When the checkpoint is complete, the JobManager changes the table. It rewrites the
files that hold rows with these keys, and leaves these rows out (copy on write). So every reader of the format sees each
key once. One commit replaces all files.
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
from penstock.connectors.tables.row_writers import GONE, StagingWriter

if TYPE_CHECKING:
    from penstock.connectors.core.sink import WriterContext


@dataclass(frozen=True)
class Changes:
    """The changes of one checkpoint to a table.

    `rows`: one row per key, with a column `GONE` that marks deleted rows. `check_wanted`: raises an error if this commit must stop,
    because another attempt has taken over.
    """

    key: tuple[str, ...]
    rows: pa.Table
    check_wanted: Callable[[], None] = lambda: None

    @classmethod
    def of(
        cls, key: tuple[str, ...], tables: Iterable[pa.Table], check_wanted: Callable[[], None] = lambda: None
    ) -> Changes:
        """Return the changes that the rows of all subtasks make.

        Args:
            tables: the rows of all subtasks in order of arrival, with or without a column `GONE`.
        """
        return cls(key, last_of_each_key(key, map(_marked, tables)), check_wanted)

    @property
    def gone(self) -> pa.Array:
        """Return a mask of the deleted rows."""
        return self.rows.column(GONE).combine_chunks()

    def columns_in(self, table: pa.Schema, name: str) -> pa.Schema:
        """Return the columns of the rows with the table's current types. Stored rows may have other columns than the sink declares now.

        Raises:
            InvalidJob: the rows no longer fit the table of this name.
        """
        return fit(self.rows.drop_columns(GONE).schema, table, name).schema

    def as_columns(self, schema: pa.Schema) -> pa.Table:
        """Return the rows with these columns and types, and with `GONE`."""
        batches = self.rows.drop_columns(GONE).combine_chunks().to_batches()
        loose = nullable(schema)
        table = pa.Table.from_batches([as_columns(batch, loose) for batch in batches], loose)
        return table.append_column(GONE, self.gone)

    def bounds(self, name: str) -> tuple[Any, Any] | None:
        """Return the least and greatest value of a key column, or None if files cannot be skipped by the bounds of this type."""
        kind = self.rows.schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date32(kind)):
            return None
        found = pc.min_max(self.rows.column(name))
        return found["min"].as_py(), found["max"].as_py()


class ChangesWriter(StagingWriter):
    """A writer that buffers rows until the barrier.

    Args:
        sink: has `shape`, `key` and `deletes`.
        schema: the written columns, with the table's types.
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

    def _buffer(self, columns: pa.RecordBatch) -> None:
        rows = as_columns(columns, self._loose)
        for name in self._key:
            if rows.column(name).null_count:
                raise RecordFormatError(
                    f"a record has no value for {name!r}, which is in the table's key",
                    remedy="filter such records out: a row without a key cannot be found again",
                )
        for column, field in zip(rows.columns, self._loose, strict=True):
            _check_times(column, field)
        if GONE not in columns.schema.names:
            as_columns(rows, self._schema)
            super()._buffer(rows)
            return
        gone = columns.column(GONE)
        as_columns(rows.filter(pc.invert(gone)), self._schema)
        super()._buffer(pa.RecordBatch.from_arrays([*rows.columns, gone], names=[*rows.schema.names, GONE]))


def nullable(schema: pa.Schema) -> pa.Schema:
    """Return the same columns, all nullable, because a deleted row needs values only for its key."""
    return pa.schema([field.with_nullable(nullable=True) for field in schema])


def _check_times(column: pa.Array, field: pa.Field) -> None:
    """Raise an error for dates that Python does not support. Otherwise every commit would fail, because the pruning of files converts
    bounds to Python dates."""
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
