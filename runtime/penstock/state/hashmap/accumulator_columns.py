"""Accumulators of one namespace as columns: a row for each key, and a numpy array for each number of an accumulator.

For a batch, the operator finds the rows of its keys, reads the numbers of these rows, and writes new numbers back. No Python object is
created for any key or accumulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.state.encoding.key_index import KeyIndex
from penstock.state.snapshot_format.column_rows import ColumnRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.state.encoding.packed_keys import PackedKeys, Rows
    from penstock.state.snapshot_format.column_rows import AccumulatorShape, Column


class Places(NamedTuple):
    """Keys and their rows. The row of a new key is -1."""

    keys: PackedKeys
    rows: Rows


class AccumulatorColumns:
    """The columns of one namespace. `shape`: the meaning of the columns."""

    def __init__(self, shape: AccumulatorShape) -> None:
        self.shape = shape
        self._index = KeyIndex()
        self._columns: list[Column] = [np.full(1, value) for value in shape.fresh]
        self._changed = np.zeros(1, np.bool_)

    def __len__(self) -> int:
        return self._index.size

    def keys(self) -> PackedKeys:
        """Return all keys in the order of their arrival."""
        return self._index.keys()

    def accumulators(self) -> list[object]:
        """Return the accumulators of all keys, in the order of `keys`."""
        return self.shape.accumulators([column[: len(self)] for column in self._columns])

    def find(self, keys: PackedKeys | None) -> Places | None:
        """Return the rows of the keys, or None if the keys do not have the kind of the existing keys."""
        if keys is None or not self._index.accepts(keys):
            return None
        return Places(keys, self._index.find(keys))

    def read(self, places: Places) -> list[Column]:
        """Return the numbers of every key. A new key has the numbers of an empty accumulator."""
        columns = [column[places.rows] for column in self._columns]
        new = np.flatnonzero(places.rows < 0)
        if len(new):
            for column, fresh in zip(columns, self.shape.fresh, strict=True):
                column[new] = fresh
        return columns

    def write(self, places: Places, columns: Sequence[Column]) -> None:
        """Store these numbers. Each new key gets a row. New keys must be distinct."""
        rows = places.rows
        new = np.flatnonzero(rows < 0)
        if len(new):
            rows = rows.copy()
            rows[new] = self._index.add(places.keys.take(new))
            self._reserve()
        for kept, column in zip(self._columns, columns, strict=True):
            kept[rows] = column
        self.mark(rows)

    def _reserve(self) -> None:
        room = len(self._changed)
        if len(self) <= room:
            return
        more = max(room, len(self) - room)
        self._columns = [np.concatenate((column, np.empty(more, column.dtype))) for column in self._columns]
        self._changed = np.concatenate((self._changed, np.zeros(more, np.bool_)))

    def mark(self, rows: Rows) -> None:
        """Mark these rows as changed."""
        self._changed[rows] = True

    def change_count(self) -> int:
        return int(np.count_nonzero(self._changed))

    def take_changed(self) -> Places:
        """Return the changes since the last call."""
        rows = np.flatnonzero(self._changed)
        self._changed[rows] = False
        return Places(self.keys().take(rows), rows)

    def frozen(self, places: Places) -> ColumnRows:
        """Return the current content of these places."""
        return ColumnRows(places.keys, self.shape, [column[places.rows] for column in self._columns])

    def frozen_all(self) -> ColumnRows:
        return ColumnRows(self.keys(), self.shape, [column[: len(self)].copy() for column in self._columns])
