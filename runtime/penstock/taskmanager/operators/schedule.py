"""Items that an operator has to check when a clock reaches their time. They need no timers in state.

Times have a resolution of 64 ms. Adding an item costs one append to a list, for any number of items. If the time of an
item becomes later, the item does not move. So the caller of `take` must check the current time of each item, and add
items again that are not due.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
BITS = 6


class Schedule(Generic[T]):
    """Items by the time at which they are due.

    Args:
        time_of: returns the current due time of an item (ms). It is never earlier than the time with which the item was
            added.

    >>> schedule = Schedule(len)
    >>> for word in ("a" * 70, "b" * 200): schedule.add(len(word), word)
    >>> schedule.first(), len(schedule.take(100)), schedule.first()
    (70, 1, 200)
    """

    def __init__(self, time_of: Callable[[T], int]) -> None:
        self._time_of = time_of
        self._slots: dict[int, list[T]] = {}
        self._heap: list[int] = []

    def add(self, time: int, item: T) -> None:
        slot = time >> BITS
        items = self._slots.get(slot)
        if items is None:
            self._slots[slot] = [item]
            heappush(self._heap, slot)
        else:
            items.append(item)

    def take(self, until: int) -> list[T]:
        """Take all items that may be due by `until` (ms), and some that are due up to 63 ms later."""
        heap, taken, last = self._heap, [], until >> BITS
        while heap and heap[0] <= last:
            taken += self._slots.pop(heappop(heap))
        return taken

    def first(self) -> int | None:
        """Return the earliest time, or None if the schedule is empty."""
        while self._heap:
            slot = self._heap[0]
            times = list(map(self._time_of, self._slots[slot]))
            if min(times) >> BITS == slot:
                return min(times)
            heappop(self._heap)
            for time, item in zip(times, self._slots.pop(slot), strict=True):
                self.add(time, item)
        return None

    def clear(self) -> None:
        self._slots.clear()
        self._heap.clear()
