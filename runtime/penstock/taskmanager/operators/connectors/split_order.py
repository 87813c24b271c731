"""Which of its splits a source reads next, and the lowest watermark of those that hold the clock back.

A subtask may have 100,000 splits, one for each small file, so nothing here looks at all of them for one batch. Watermarks
only rise: an entry of a heap may be out of date, but it is never too high, and is put right when it comes to the top.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import Protocol

from penstock.records.batch import MIN_TIMESTAMP


class Clocked(Protocol):
    """A split as it is seen here."""

    number: int
    """Splits came in this order."""
    watermark: int | None
    """ms; None before the first."""
    is_closed: bool


_Entry = tuple[int, int, Clocked]


class ReadOrder:
    """Splits that may have something to read: the one with the lowest watermark first (A46, T27), of those the first.

    Args:
        in_turns: a split that was read goes behind the others of the same watermark.
    """

    def __init__(self, *, in_turns: bool) -> None:
        self._in_turns = in_turns
        self._turn = 0
        self._ready: list[_Entry] = []
        self._dry: list[Clocked] = []

    def add(self, split: Clocked) -> None:
        """Put a split in, or back after it was read."""
        self._turn += 1
        heappush(self._ready, (_watermark(split), self._turn if self._in_turns else split.number, split))

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def set_aside(self, split: Clocked) -> None:
        """A split that had nothing, or has given all that it had, is not asked again before `retry`."""
        self._dry.append(split)

    def retry(self) -> int:
        """Ask those again that were set aside; how many they are."""
        dry, self._dry = self._dry, []
        for split in dry:
            self.add(split)
        return len(dry)

    def take(self, limit: int) -> Clocked | None:
        """The split to read now, until it is put back; None: there is none, or all are past the watermark `limit`."""
        ready = self._ready
        while ready:
            watermark, turn, split = ready[0]
            current = _watermark(split)
            if current != watermark:
                heapreplace(ready, (current, turn, split))
            elif watermark > limit:
                return None
            else:
                heappop(ready)
                return split
        return None


class LowestWatermark:
    """The minimum over splits that are neither closed nor taken out."""

    def __init__(self) -> None:
        self._heap: list[_Entry] = []

    def add(self, split: Clocked) -> None:
        heappush(self._heap, (_watermark(split), split.number, split))

    def first(self) -> Clocked | None:
        """The split with the lowest watermark."""
        heap = self._heap
        while heap:
            watermark, number, split = heap[0]
            current = _watermark(split)
            if split.is_closed:
                heappop(heap)
            elif current != watermark:
                heapreplace(heap, (current, number, split))
            else:
                return split
        return None

    def take_first(self) -> None:
        """Take out what `first` gave."""
        heappop(self._heap)


def _watermark(split: Clocked) -> int:
    return MIN_TIMESTAMP if split.watermark is None else split.watermark
