"""Timers as a table: for each timestamp, the pairs (key, namespace) that have a timer.

A window's timers of all keys have the same timestamp. Each timer is one entry in a shared dictionary. Timestamps are
compared as integers. All timers of a timestamp are removed together when they fire. For the next snapshot, the table
records registered timers, deleted timers, and timestamps that fired as a whole. It records nothing about a timestamp
whose timers were all registered and removed between two snapshots.

A bucket of one timer is a tuple of one pair. Such buckets are usual if every key has separate times. The tuple takes a
fourth of a dictionary's memory, and the garbage collector does not scan it repeatedly.

Timestamps are in *slots* of 1,024 ms. The slots are unsorted except for the earliest one, which has the latest
timestamp first. So a timestamp that fires is removed from the end of a list. A new timestamp of another slot is
appended to a list. The cost does not depend on the number of timers.
"""

from __future__ import annotations

from bisect import insort
from heapq import heapify, heappop, heappush
from itertools import chain
from operator import neg
from typing import TYPE_CHECKING, Any

from penstock.state.encoding.any_codec import ScalarCodec
from penstock.state.hashmap.table import Changes, Table
from penstock.state.snapshot_format.rows import DELETE, DROP, PUT, Rows
from penstock.state.snapshot_format.segment import StateInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.state.encoding.keys import KeyCodec

TIMER_INFO = StateInfo("timer", "timer", {"type": "int"})
TIMER_TABLES = ("event-time", "processing-time")
"""Names of the timers in snapshots."""

Pair = tuple[Any, Any]
Timer = tuple[int, Pair]
BITS = 10


class TimerChanges(Changes):
    """Timers that were registered and exist, timers that were deleted and do not exist, and timestamps that fired."""

    __slots__ = ("deleted", "registered")

    def __init__(self, registered: list[Timer], deleted: list[Timer], dropped: set[Any]) -> None:
        super().__init__({}, dropped)
        self.registered = registered
        self.deleted = deleted


class TimerTable(Table):
    """Table of the timers of one time domain. `spaces` maps timestamps to buckets."""

    layout = "timer"

    def __init__(self, name: str, operator: str = "", keys: KeyCodec | None = None) -> None:
        super().__init__(name, ScalarCodec(int, name, operator))
        self.keys = keys
        del self.spaces[None]
        self._slots: dict[int, list[int]] = {}
        self._heap: list[int] = []
        self._earliest: list[int] | None = None
        """Sorted timestamps of the first slot; None if they were not needed yet, or if a new slot is now the first
        slot.
        """
        self._stale = 0
        """Number of timestamps that are still in slots although their timers are gone."""
        self.firing: set[int] = set()
        """Timestamps whose buckets are firing.

        The timers that fire are not recorded one by one, because the whole bucket is dropped.
        """
        self._born: set[int] = set()
        self._dropped: set[int] = set()
        self._deleted: list[Timer] = []
        self._registered: list[Timer] = []

    def track(self, *, on: bool) -> None:
        self.tracking = on
        self._dropped = set()
        self._born.clear()
        self._deleted = []
        self._registered = []

    def register(self, timestamp: int, pair: Pair) -> None:
        bucket: Any = self.spaces.get(timestamp)
        if bucket is None:
            self.spaces[timestamp] = (pair,)  # type: ignore[assignment]
            times = self._slots.get(timestamp >> BITS)
            if times is None:
                self._open_slot(timestamp)
            elif times is self._earliest:
                insort(times, timestamp, key=neg)
            else:
                times.append(timestamp)
            if self.tracking:
                self._born.add(timestamp)
        elif _holds(bucket, pair):
            return
        elif type(bucket) is tuple:
            self.spaces[timestamp] = {bucket[0]: None, pair: None}
        else:
            bucket[pair] = None
        if self.tracking:
            self._registered.append((timestamp, pair))

    def _open_slot(self, timestamp: int) -> None:
        slot = timestamp >> BITS
        self._slots[slot] = [timestamp]
        heappush(self._heap, slot)
        if self._heap[0] == slot:
            self._earliest = None

    def due(self, until: int) -> Iterator[tuple[int, Pair]]:
        """Yield timers up to a time, in order of time. Each timer is removed when it is yielded.

        The caller may register and delete timers during the iteration. New timers that are due are also yielded. A new
        timer with an earlier time comes next.
        """
        spaces = self.spaces
        while (first := self.first()) is not None and first <= until:
            times = self._earliest
            assert times is not None
            while times is self._earliest and times and (timestamp := times[-1]) <= until:
                bucket: Any = spaces.get(timestamp)
                if type(bucket) is tuple:
                    times.pop()
                    del spaces[timestamp]
                    if self.tracking:
                        self._mark_dropped(timestamp)
                    yield timestamp, bucket[0]
                elif bucket is None:
                    break
                else:
                    yield from self._fire_bucket(timestamp, bucket, times)

    def _fire_bucket(self, timestamp: int, bucket: dict[Pair, None], times: list[int]) -> Iterator[tuple[int, Pair]]:
        """Yield every timer of one timestamp. Stop when an earlier timer exists."""
        self.firing.add(timestamp)
        for pair in list(bucket):
            if pair not in bucket:
                continue
            del bucket[pair]
            yield timestamp, pair
            if times is not self._earliest or not times or times[-1] != timestamp:
                break
        if not bucket and self.spaces.get(timestamp) is bucket:
            self.drop(timestamp)

    def delete(self, timestamp: int, pair: Pair) -> None:
        bucket: Any = self.spaces.get(timestamp)
        if not _holds(bucket, pair):
            return
        if type(bucket) is not tuple:
            del bucket[pair]
            if not bucket and timestamp in self.firing:
                self.drop(timestamp)
                return
        if self.tracking and timestamp not in self._born:
            self._deleted.append((timestamp, pair))
        if not bucket or type(bucket) is tuple:
            self._forget(timestamp)

    def drop(self, timestamp: int) -> None:
        """Drop a bucket that fired as a whole. No changes of its single timers were recorded."""
        if self.tracking:
            self._mark_dropped(timestamp)
        self._forget(timestamp)

    def _mark_dropped(self, timestamp: int) -> None:
        if timestamp in self._born:
            self._born.discard(timestamp)
        else:
            self._dropped.add(timestamp)

    def _forget(self, timestamp: int) -> None:
        del self.spaces[timestamp]
        self._born.discard(timestamp)
        self.firing.discard(timestamp)
        if self._earliest and self._earliest[-1] == timestamp:
            self._earliest.pop()
        else:
            self._stale += 1
            if self._stale > len(self.spaces) + 1024:
                self._make_slots()

    def first(self) -> int | None:
        """Return the earliest timestamp."""
        spaces = self.spaces
        while self._heap:
            times = self._earliest
            if times is None:
                times = self._earliest = self._slots[self._heap[0]]
                times.sort(reverse=True)
            while times:
                if times[-1] in spaces:
                    return times[-1]
                times.pop()
                self._stale = max(0, self._stale - 1)
            del self._slots[heappop(self._heap)]
            self._earliest = None
        return None

    def timers(self) -> Iterator[tuple[int, Any, Any]]:
        """Yield (timestamp, key, namespace) in order of time."""
        for timestamp in sorted(self.spaces):
            for key, namespace in list(self.spaces[timestamp]):
                yield timestamp, key, namespace

    def key_group_keys(self, keys: list[Any]) -> list[Any]:
        return [key for key, _ in keys]

    def change_count(self) -> int:
        return len(self._registered) + len(self._deleted) + len(self._dropped)

    def take_changes(self) -> TimerChanges:
        spaces = self.spaces
        registered = [timer for timer in self._registered if _holds(spaces.get(timer[0]), timer[1])]
        deleted = [timer for timer in self._deleted if not _holds(spaces.get(timer[0]), timer[1])]
        changes = TimerChanges(registered, deleted, self._dropped)
        self.track(on=self.tracking)
        return changes

    def restore_changes(self, changes: Changes) -> None:
        assert isinstance(changes, TimerChanges)
        self._dropped |= changes.dropped
        for timer in chain(changes.registered, changes.deleted):
            is_registered = timer[1] in self.spaces.get(timer[0], ())
            (self._registered if is_registered else self._deleted).append(timer)

    def freeze(self, changes: Changes) -> list[Rows]:
        assert isinstance(changes, TimerChanges)
        rows = [Rows(DROP, [], list(changes.dropped))] if changes.dropped else []
        return rows + _rows(DELETE, changes.deleted) + _rows(PUT, changes.registered)

    def freeze_keys(self, keys: Sequence[Any], namespaces: list[Any] | None) -> list[Rows]:
        spaces = self.spaces
        timers = zip(namespaces or (), keys, strict=True)
        return _rows(PUT, [timer for timer in timers if _holds(spaces.get(timer[0]), timer[1])])

    def freeze_all(self) -> list[Rows]:
        return _rows(PUT, [(timestamp, pair) for timestamp, bucket in self.spaces.items() for pair in bucket])

    def apply(self, rows: Rows) -> None:
        if rows.op == DROP:
            for timestamp in rows.namespaces or ():
                self.spaces.pop(timestamp, None)
        else:
            namespaces = rows.namespaces or [None] * len(rows.keys)
            pairs = list(zip(rows.keys, namespaces, strict=True))
            super().apply(Rows(rows.op, pairs, rows.values))

    def _apply(self, rows: Rows) -> None:
        for pair, timestamp in zip(rows.keys, rows.namespaces or (), strict=True):
            self.space(timestamp)[pair] = None

    def restored(self) -> None:
        """Finish a restore after all rows were applied."""
        for timestamp, bucket in self.spaces.items():
            if len(bucket) == 1:
                self.spaces[timestamp] = tuple(bucket)  # type: ignore[assignment]
        self._make_slots()

    def clear(self) -> None:
        super().clear()
        self._make_slots()

    def _make_slots(self) -> None:
        self._slots = {}
        for timestamp in self.spaces:
            self._slots.setdefault(timestamp >> BITS, []).append(timestamp)
        self._heap = list(self._slots)
        heapify(self._heap)
        self._earliest = None
        self._stale = 0


def _holds(bucket: Any, pair: Pair) -> bool:
    """Return whether a bucket has the timer. Keys are compared as a dict compares them: by their hash first.

    The operator `in` of a tuple would compare the keys themselves, and the comparison of a numpy key with a tuple
    returns an array.
    """
    if type(bucket) is tuple:
        (only,) = bucket
        return hash(pair) == hash(only) and pair == only
    return bucket is not None and pair in bucket


def _rows(op: int, timers: list[Timer]) -> list[Rows]:
    """Return timers as a segment stores them: by key and namespace, with the timestamp as the value."""
    if not timers:
        return []
    namespaces: list[Any] | None = [pair[1] for _, pair in timers]
    if not any(pair[1] is not None for _, pair in timers):
        namespaces = None
    return [Rows(op, [pair[0] for _, pair in timers], namespaces, values=[timestamp for timestamp, _ in timers])]
