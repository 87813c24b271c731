"""Timers as a table: for each timestamp the pairs (key, namespace) that have a timer there.

A window's timers of all keys share their timestamp, so they cost one entry each in one dictionary, are compared as
integers, and go all at once when they fire. What is noted for the next snapshot: timers registered, timers deleted, and
timestamps that fired as a whole; nothing of a timestamp that came and went between two snapshots.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from penstock.state.any_codec import ScalarCodec
from penstock.state.rows import DROP, PUT, Rows
from penstock.state.tables import Changes, Marks, Table

if TYPE_CHECKING:
    from collections.abc import Iterator


Pair = tuple[Any, Any]
Bucket = dict[Pair, None]


class TimerTable(Table):
    """Timers of one time domain. `spaces` maps timestamps to buckets; `heap` holds the timestamps."""

    layout = "timer"

    def __init__(self, name: str, operator: str = "") -> None:
        super().__init__(name, ScalarCodec(int, name, operator))
        del self.spaces[None]
        self.heap: list[int] = []
        self.firing: set[int] = set()
        """Timestamps whose buckets are being fired: what goes from them is not noted, they go as a whole."""
        self._stale = 0
        self._born: set[int] = set()
        self._deleted: list[tuple[int, Pair]] = []
        self._registered: deque[tuple[int, Pair]] | list[tuple[int, Pair]] = deque(maxlen=0)

    def track(self, *, on: bool) -> None:
        super().track(on=on)
        self._born.clear()
        self._deleted = []
        self._registered = [] if on else deque(maxlen=0)

    def register(self, timestamp: int, pair: Pair) -> None:
        bucket = self.spaces.get(timestamp)
        if bucket is None:
            self.spaces[timestamp] = {pair: None}
            heappush(self.heap, timestamp)
            if self.tracking:
                self._born.add(timestamp)
        elif pair in bucket:
            return
        else:
            bucket[pair] = None
        self._registered.append((timestamp, pair))

    def delete(self, timestamp: int, pair: Pair) -> None:
        bucket = self.spaces.get(timestamp)
        if bucket is None or pair not in bucket:
            return
        del bucket[pair]
        if not bucket and timestamp in self.firing:
            self.drop(timestamp)
            return
        if self.tracking and timestamp not in self._born:
            self._deleted.append((timestamp, pair))
        if not bucket:
            self._forget(timestamp)

    def drop(self, timestamp: int) -> None:
        """A bucket fired as a whole; nothing was noted of its timers one by one."""
        if self.tracking and timestamp not in self._born:
            self._dropped.add(timestamp)
        self._forget(timestamp)

    def _forget(self, timestamp: int) -> None:
        del self.spaces[timestamp]
        self._born.discard(timestamp)
        self.firing.discard(timestamp)
        if self.heap[0] == timestamp:
            heappop(self.heap)
        else:
            self._stale += 1
            if self._stale > len(self.spaces) + 1024:
                self.restored()

    def first(self) -> int | None:
        """The earliest timestamp."""
        heap = self.heap
        while heap:
            if heap[0] in self.spaces:
                return heap[0]
            heappop(heap)
            self._stale = max(0, self._stale - 1)
        return None

    def timers(self) -> Iterator[tuple[int, Any, Any]]:
        """(timestamp, key, namespace) in order of time."""
        for timestamp in sorted(self.spaces):
            for key, namespace in list(self.spaces[timestamp]):
                yield timestamp, key, namespace

    def key_group_keys(self, keys: list[Any]) -> list[Any]:
        return [key for key, _ in keys]

    def mark_removed(self, key: Any, namespace: Any) -> None:
        self._deleted.append((namespace, key))

    def change_count(self) -> int:
        return len(self._registered) + len(self._deleted) + len(self._dropped)

    def take_changes(self) -> Changes:
        marks: dict[Any, Marks] = {}
        for timestamp, pair in self._registered:
            if pair in self.spaces.get(timestamp, ()):
                marks.setdefault(timestamp, {})[pair] = None
        for timestamp, pair in self._deleted:
            if timestamp not in self._dropped or timestamp in self.spaces:
                marks.setdefault(timestamp, {})[pair] = None
        changes = Changes(marks, self._dropped)
        self.track(on=self.tracking)
        return changes

    def _merge_marks(self, into: Marks, marks: Marks, namespace: Any) -> None:
        bucket = self.spaces.get(namespace, ())
        for pair in marks:
            (self._registered if pair in bucket else self._deleted).append((namespace, pair))

    def _freeze_marks(self, marks: Marks, namespace: Any) -> tuple[list[Any], list[Rows]]:
        bucket = self.spaces.get(namespace, {})
        gone = [pair for pair in marks if pair not in bucket]
        there = [pair for pair in marks if pair in bucket]
        return gone, [self._rows_of_cells(there, [], [namespace] * len(there))] if there else []

    def _rows_of_cells(self, keys: list[Any], cells: list[Any], namespaces: list[Any] | None) -> Rows:
        return Rows(PUT, keys, namespaces)

    def freeze(self, changes: Changes) -> list[Rows]:
        return [_addressed(rows) for rows in super().freeze(changes)]

    def freeze_keys(self, keys: list[Any], namespaces: list[Any] | None) -> list[Rows]:
        return [_addressed(rows) for rows in super().freeze_keys(keys, namespaces)]

    def freeze_all(self) -> list[Rows]:
        return [_addressed(rows) for rows in super().freeze_all()]

    def apply(self, rows: Rows) -> None:
        if rows.op == DROP:
            for timestamp in rows.namespaces or ():
                self.spaces.pop(timestamp, None)
        else:
            namespaces = rows.namespaces or [None] * len(rows.keys)
            pairs = list(zip(rows.keys, namespaces, strict=True))
            super().apply(Rows(rows.op, pairs, rows.values))
        self.heap = []

    def _apply(self, rows: Rows) -> None:
        for pair, timestamp in zip(rows.keys, rows.namespaces or (), strict=True):
            self.space(timestamp)[pair] = None

    def restored(self) -> None:
        """Make the heap anew: all rows were applied, or most of it is stale."""
        self.heap = list(self.spaces)
        heapify(self.heap)
        self._stale = 0


def _addressed(rows: Rows) -> Rows:
    """Timers in a segment: by key and namespace, the timestamp as the value."""
    if rows.op == DROP:
        return rows
    namespaces: list[Any] | None = [namespace for _, namespace in rows.keys]
    if all(namespace is None for _, namespace in rows.keys):
        namespaces = None
    return Rows(rows.op, [key for key, _ in rows.keys], namespaces, values=rows.namespaces)
