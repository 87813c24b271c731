"""The order in which a source reads its splits, and the lowest watermark of the splits that hold the clock back.

A subtask may have 100,000 splits, one for each small file. So no code of this module visits all splits for one batch.
Watermarks only rise, so an outdated entry of a heap is never too high. Such an entry is corrected when it reaches the
top.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import Protocol

from penstock.records.batch import MIN_TIMESTAMP


class Clocked(Protocol):
    """The part of a split that this module uses."""

    number: int
    """Number of the split in the order of arrival."""
    watermark: int | None
    """Watermark that was last emitted (ms), or None before the first one."""
    reached: int | None
    """Progress of the split's records (ms): the watermark that the split emits next."""
    is_closed: bool


_Entry = tuple[int, int, Clocked]


class ReadOrder:
    """The splits that may have records. The split with the least progress comes first. Among splits with the same
    progress, the first one to arrive comes first.

    Args:
        in_turns: whether a split that was read goes behind the other splits with the same progress.
    """

    def __init__(self, *, in_turns: bool) -> None:
        self._in_turns = in_turns
        self._turn = 0
        self._ready: list[_Entry] = []
        self._dry: list[Clocked] = []

    def add(self, split: Clocked) -> None:
        """Add a split, or return it after it was read."""
        self._turn += 1
        heappush(self._ready, (_reached(split), self._turn if self._in_turns else split.number, split))

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def set_aside(self, split: Clocked) -> None:
        """Exclude a split without available records until the next call of `retry`."""
        self._dry.append(split)

    def retry(self) -> int:
        """Include the excluded splits again, and return their number."""
        dry, self._dry = self._dry, []
        for split in dry:
            self.add(split)
        return len(dry)

    def take(self, limit: int) -> Clocked | None:
        """Take the split to read now.

        Return None if no split is ready, or if the progress of all splits is later than `limit`.
        """
        ready = self._ready
        while ready:
            reached, turn, split = ready[0]
            current = _reached(split)
            if current != reached:
                heapreplace(ready, (current, turn, split))
            elif reached > limit:
                return None
            else:
                heappop(ready)
                return split
        return None


class LowestWatermark:
    """The minimum over the splits that are neither closed nor removed."""

    def __init__(self) -> None:
        self._heap: list[_Entry] = []

    def add(self, split: Clocked) -> None:
        heappush(self._heap, (_watermark(split), split.number, split))

    def first(self) -> Clocked | None:
        """Return the split with the lowest watermark."""
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
        """Remove the split that `first` returned."""
        heappop(self._heap)


def _reached(split: Clocked) -> int:
    return MIN_TIMESTAMP if split.reached is None else split.reached


def _watermark(split: Clocked) -> int:
    return MIN_TIMESTAMP if split.watermark is None else split.watermark
