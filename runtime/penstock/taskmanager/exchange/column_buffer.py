"""Columns for one target. The sender holds small batches and sends them together.

A batch of a source is split over all subtasks of the next operator. For eight subtasks, a batch of 4,000 records
becomes buffers of 500. Each buffer has a fixed cost of about 1 ms in all, for encoding, decoding and sorting by key.
For such small buffers, this would be most of the total cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from penstock.records.batch import ColumnBatch

FULL_RECORDS = 4_000
FULL_BYTES = 1024 * 1024
"""Size of a full buffer of columns in bytes. Larger buffers do not reduce the cost per record."""


class ColumnBuffer:
    """The held batches of one target, in order. All batches have the same columns."""

    __slots__ = ("_bytes", "_parts", "_records")

    def __init__(self) -> None:
        self._parts: list[ColumnBatch] = []
        self._records = 0
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._parts)

    def fits(self, batch: ColumnBatch) -> bool:
        """Return whether the batch can be joined with the held batches."""
        return not self._parts or self._parts[0].has_same_columns_as(batch)

    def add(self, batch: ColumnBatch) -> None:
        self._parts.append(batch)
        self._records += len(batch)
        self._bytes += batch.approximate_bytes()

    @property
    def is_full(self) -> bool:
        return self._records >= FULL_RECORDS or self._bytes >= FULL_BYTES

    def take(self) -> list[ColumnBatch]:
        """Remove and return the batches, joined into one.

        If Arrow cannot join the batches, they are returned separately. An example is dictionaries with too many values
        in total.
        """
        parts = self._parts
        self._parts, self._records, self._bytes = [], 0, 0
        if len(parts) < 2:
            return parts
        try:
            return [parts[0].joined(parts[1:])]
        except pa.ArrowException:
            return parts
