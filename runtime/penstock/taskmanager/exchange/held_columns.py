"""Columns for one target that wait for others to travel with.

A batch of a source is split over all subtasks of the next operator: with eight of them a batch of four thousand records is
buffers of five hundred, and what a buffer costs whatever it has (encoding, decoding, sorting by key: about a millisecond in
all) is most of what these cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from penstock.records.batch import ColumnBatch

ENOUGH_RECORDS = 4_000
ENOUGH_BYTES = 1024 * 1024
"""Of a buffer of columns; more do not make a record cheaper."""


class HeldColumns:
    """Batches of one kind, in order."""

    __slots__ = ("_bytes", "_parts", "_records")

    def __init__(self) -> None:
        self._parts: list[ColumnBatch] = []
        self._records = 0
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._parts)

    def fits(self, batch: ColumnBatch) -> bool:
        """Whether it can be one batch with those that wait."""
        return not self._parts or self._parts[0].goes_with(batch)

    def add(self, batch: ColumnBatch) -> None:
        self._parts.append(batch)
        self._records += len(batch)
        self._bytes += batch.approximate_bytes()

    @property
    def is_enough(self) -> bool:
        return self._records >= ENOUGH_RECORDS or self._bytes >= ENOUGH_BYTES

    def take(self) -> list[ColumnBatch]:
        """All as one batch; as they are if Arrow cannot put them together, such as dictionaries that have too many values in all."""
        parts = self._parts
        self._parts, self._records, self._bytes = [], 0, 0
        if len(parts) < 2:
            return parts
        try:
            return [parts[0].joined(parts[1:])]
        except pa.ArrowException:
            return parts
