"""Sources whose records are a function of their index: a collection, a range of numbers, a generator.

A split is a range of indexes, and its position is the next index. A reader that is opened at a position returns exactly
the remaining records.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from penstock.connectors.core.source import ReadBounds, SourceReader, Split, SplitEnumerator, SplitReader
from penstock.records.batch import RowBatch

if TYPE_CHECKING:
    from collections.abc import Callable


def ranges(start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """Return at most `parts` ranges of about equal length from `start` to `end` (excluded). No range is empty.
    >>> ranges(0, 10, 3)
    [(0, 3), (3, 6), (6, 10)]
    """
    bounds = [start + (end - start) * n // parts for n in range(parts + 1)]
    return [(low, high) for low, high in itertools.pairwise(bounds) if low < high]


class RangeEnumerator(SplitEnumerator):
    """An enumerator of the indexes from `start` to `end` (excluded) in `parts` splits; None means one split per subtask."""

    def __init__(self, start: int, end: int, parts: int | None) -> None:
        self._start = start
        self._end = end
        self._parts = parts

    def discover(self) -> list[Split]:
        parts = self._parts or max(1, self.parallelism)
        return [
            Split(f"{low}-{high}", {"start": low, "end": high}, high - low)
            for low, high in ranges(self._start, self._end, parts)
        ]


class RangeReader(SourceReader):
    """A reader that opens ranges. `values(low, high)` returns the records of the indexes from `low` to `high` (excluded)."""

    def __init__(self, values: Callable[[int, int], list[Any]]) -> None:
        self._values = values

    def open_split(self, split: Split, position: Any) -> SplitReader:
        start = split.properties["start"] if position is None else position
        return RangeSplitReader(self._values, start, split.properties["end"])


class RangeSplitReader(SplitReader):
    def __init__(self, values: Callable[[int, int], list[Any]], start: int, end: int) -> None:
        self._values = values
        self._next = start
        self._end = end

    def read(self, bounds: ReadBounds) -> RowBatch | None:
        start = self._next
        if start >= self._end:
            return None
        self._next = min(self._end, start + max(1, bounds.max_records))
        return RowBatch(self._values(start, self._next))

    @property
    def position(self) -> int:
        return self._next

    @property
    def finished(self) -> bool:
        return self._next >= self._end

    def lag(self) -> int:
        return self._end - self._next
