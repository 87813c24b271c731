"""Rows by their key: the last row of each key in a checkpoint, and the table's rows with the same keys.

Keys are compared by value, in the types of their columns, without creating Python objects. Each distinct value of a column gets a number.
The numbers of a row are combined into one number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.errors import InvalidJob
from penstock.connectors.tables.row_writers import GONE

_ROW = "penstock_row"


def check_key(key: Sequence[str], schema: pa.Schema, *, deletes: bool) -> tuple[str, ...]:
    """Return the key of a sink whose records have this schema.

    Raises:
        InvalidJob: a field does not exist, or has a type whose values cannot be compared for equality (such as floats).
    """
    names = tuple(key)
    if deletes and not names:
        raise InvalidJob("deletes=True needs key=", remedy="name the columns that identify a row: key=[…]")
    missing = [name for name in names if schema.get_field_index(name) < 0]
    if missing or len(set(names)) < len(names):
        raise InvalidJob(
            f"key={list(names)} must name distinct fields of the records, which are {', '.join(schema.names)}",
            remedy="correct the names",
        )
    for name in names:
        kind = schema.field(name).type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
            raise InvalidJob(
                f"key {name!r} is of type {kind}, whose values cannot be compared for equality reliably",
                remedy="use whole numbers, text, dates, times, decimals or bytes as a key",
            )
    if GONE in schema.names:
        raise InvalidJob(f"a field is called {GONE!r}, a name that rows with a key reserve", remedy="rename it")
    return names


def last_of_each_key(key: Sequence[str], batches: Iterable[pa.Table]) -> pa.Table:
    """Return the last row of each key, in order of arrival.

    >>> rows = pa.table({"id": [1, 2, 1], "n": [10, 20, 30]})
    >>> last_of_each_key(["id"], [rows]).to_pydict()
    {'id': [2, 1], 'n': [20, 30]}
    """
    # A table's column may have become wider between the starts of two subtasks.
    rows = pa.concat_tables(batches, promote_options="permissive").combine_chunks()
    numbered = rows.select(list(key)).append_column(_ROW, pa.array(np.arange(rows.num_rows)))
    last = numbered.group_by(list(key)).aggregate([(_ROW, "max")]).column(f"{_ROW}_max")
    return rows.take(last.take(pc.sort_indices(last)))


class KeyIndex:
    """An index that finds rows by key, for many rows at once.

    >>> index = KeyIndex(["id", "day"], pa.table({"id": [1, 1, 2], "day": ["a", "b", "a"]}))
    >>> index.find(pa.table({"id": [2, 1, 2, None], "day": ["a", "b", "b", "a"]})).to_pylist()
    [2, 1, None, None]
    """

    def __init__(self, key: Sequence[str], rows: pa.Table) -> None:
        """Create an index of the rows.

        Args:
            rows: one row per key, without nulls in the key.
        """
        self._key = list(key)
        self._levels: list[tuple[pa.Array, pa.Array | None]] = []
        codes: pa.Array | None = None
        for name in self._key:
            values = _whole(rows.column(name))
            distinct = pc.unique(values)
            column = pc.index_in(values, distinct).cast(pa.int64())
            if codes is None:
                codes = column
                self._levels.append((distinct, None))
                continue
            pairs = _paired(codes, column, len(distinct))
            known = pc.unique(pairs)
            codes = pc.index_in(pairs, known).cast(pa.int64())
            self._levels.append((distinct, known))
        assert codes is not None
        rank = np.empty(rows.num_rows, np.int64)
        rank[np.asarray(codes)] = np.arange(rows.num_rows)
        self._rows = pa.array(rank)

    def find(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Return for each row the number of the indexed row with the same key, or null."""
        codes: pa.Array | None = None
        for name, (distinct, known) in zip(self._key, self._levels, strict=True):
            values = _whole(rows.column(name))
            column = pc.index_in(values.cast(distinct.type), distinct).cast(pa.int64())
            if codes is None:
                codes = column
            else:
                assert known is not None
                codes = pc.index_in(_paired(codes, column, len(distinct)), known, skip_nulls=True).cast(pa.int64())
        return self._rows.take(codes)


def _paired(codes: pa.Array, column: pa.Array, count: int) -> pa.Array:
    """Combine two numbers into one. The result is null if one of the numbers is null. Both numbers are below the number of rows, so the
    result cannot overflow."""
    return pc.add(pc.multiply(codes, count), column)


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
