"""The meaning of a program in plain Python: one record at a time, on lists and dicts.

A *history* is the list of events of a stream, in order: records with their event times, and watermarks. An operator
converts a history into another one. Batches, parallelism and checkpoints do not exist here, and those of the engine
must not affect the results. The rules are those of Flink, for example that windows are half open and aligned to the
epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

END = 2**63 - 1
START = -(2**63)


@dataclass(frozen=True)
class Record:
    value: Any
    time: int


@dataclass(frozen=True)
class Watermark:
    time: int


History = list[Record | Watermark]
Key = Callable[[Any], Any]


def records(history: History) -> list[Record]:
    return [item for item in history if isinstance(item, Record)]


def each(history: History, function: Callable[[Any], Iterable[Any]]) -> History:
    """Apply map, filter and flat_map. Results keep the time of their record."""
    result: History = []
    for item in history:
        if isinstance(item, Record):
            result += [Record(value, item.time) for value in function(item.value)]
        else:
            result.append(item)
    return result


def union(histories: list[History]) -> History:
    """Return the records in any order. No record passes a watermark, and the clock is the minimum of all inputs."""
    clocks = [START] * len(histories)
    positions = [0] * len(histories)
    result: History = []
    while any(position < len(history) for position, history in zip(positions, histories, strict=True)):
        index = min(
            (n for n, history in enumerate(histories) if positions[n] < len(history)), key=lambda n: (clocks[n], n)
        )
        item = histories[index][positions[index]]
        positions[index] += 1
        if isinstance(item, Record):
            result.append(item)
            continue
        before = min(clocks)
        clocks[index] = item.time
        if min(clocks) > before:
            result.append(Watermark(min(clocks)))
    return result


def rolling(history: History, key: Key, add: Callable[[Any, Any], Any]) -> History:
    """Apply `reduce`, which emits a result for every record."""
    totals: dict[Any, Any] = {}

    def step(value: Any) -> list[Any]:
        at = key(value)
        totals[at] = add(totals[at], value) if at in totals else value
        return [totals[at]]

    return each(history, step)


def in_order_of_time(history: History) -> History:
    """Sort the records as in batch mode: all records arrive before the clock moves once."""
    return [*sorted(records(history), key=lambda record: record.time), Watermark(END)]


def reduced(history: History, key: Key, add: Callable[[Any, Any], Any]) -> History:
    """Apply `reduce` in batch mode, which emits the last result of each key."""
    last = {key(record.value): record.value for record in records(rolling(history, key, add))}
    return [*(Record(value, END) for value in last.values()), Watermark(END)]


def buckets(history: History, key: Key, length: int) -> History:
    """Apply a process function: the running count of each key and, by timer, the sum of each `length` ms of event time.

    Each key has one timer per time. A timer for a time that has passed fires with the next watermark.
    """
    counts: dict[Any, int] = defaultdict(int)
    sums: dict[tuple[int, Any], int] = {}
    result: History = []
    for item in history:
        if isinstance(item, Record):
            at = key(item.value)
            due = min((item.time // length + 1) * length, END)
            sums[due, at] = sums.get((due, at), 0) + item.value[1]
            counts[at] += 1
            result.append(Record((at, counts[at]), item.time))
            continue
        for due, at in sorted(timer for timer in sums if timer[0] <= item.time):
            result.append(Record((at, sums.pop((due, at))), due))
        result.append(item)
    return result


def count_windows(history: History, key: Key, size: int, fold: Callable[[list[Any]], Any]) -> History:
    """Apply global windows that fire and are purged with every `size`-th record. Their end is the end of time."""
    open_: dict[Any, list[Any]] = defaultdict(list)
    result: History = []
    for item in history:
        if isinstance(item, Watermark):
            result.append(item)
            continue
        at = key(item.value)
        open_[at].append(item.value)
        if len(open_[at]) == size:
            result.append(Record(fold(open_.pop(at)), END))
    return result


# --- event-time windows ----------------------------------------------------------------------------------------------


def aligned(size: int, slide: int, offset: int = 0) -> Callable[[int], list[tuple[int, int]]]:
    """Assign tumbling and sliding windows, which are half open and aligned to the epoch. None ends after the end of
    time."""

    def assign(time: int) -> list[tuple[int, int]]:
        last = time - (time - offset) % slide
        return [(start, min(start + size, END)) for start in range(last, time - size, -slide)]

    return assign


@dataclass(eq=False)
class Pane:
    """A window of one key."""

    start: int
    end: int
    values: list[Any] = field(default_factory=list)
    counted: int = 0
    """Number of elements since the count trigger last fired."""
    fires_at_end: bool = False
    """Whether a timer for the end is set."""

    @property
    def last(self) -> int:
        return self.end - 1


@dataclass
class Windows:
    """Event-time windows with their lateness and trigger.

    Args:
        gap: gap of session windows, which merge if they overlap or touch.
        lateness: how long a window is kept after its end.
        trigger: "time" fires at the end, and for every late element. ("count", n) fires on every n-th element instead.
            ("purge", n) also drops the contents then.
    """

    key: Key
    fold: Callable[[list[Any]], Any]
    assign: Callable[[int], list[tuple[int, int]]] | None = None
    gap: int = 0
    lateness: int = 0
    trigger: Any = "time"

    def run(self, history: History) -> tuple[History, list[Record]]:
        """Return the results and the late records."""
        self._clock = START
        self._panes: dict[Any, list[Pane]] = defaultdict(list)
        self._result: History = []
        late: list[Record] = []
        for item in history:
            if isinstance(item, Watermark):
                self._advance(item.time)
                self._result.append(item)
            elif not self._add(item):
                late.append(item)
        return self._result, late

    def _add(self, record: Record) -> bool:
        panes = self._panes[self.key(record.value)]
        if self.gap:
            own = [self._session(panes, record.time)]
        else:
            assert self.assign is not None
            own = [self._pane(panes, *window) for window in self.assign(record.time)]
        taken = [pane for pane in own if pane.last + self.lateness > self._clock]
        for pane in own:
            if pane not in taken:
                panes.remove(pane)
        for pane in taken:
            pane.values.append(record.value)
            self._trigger(panes, pane)
        return bool(taken)

    @staticmethod
    def _pane(panes: list[Pane], start: int, end: int) -> Pane:
        found = next((pane for pane in panes if pane.start == start), None)
        if found is None:
            found = Pane(start, end)
            panes.append(found)
        return found

    def _session(self, panes: list[Pane], time: int) -> Pane:
        whole = Pane(time, min(time + self.gap, END))
        for pane in [pane for pane in panes if pane.start <= whole.end and whole.start <= pane.end]:
            panes.remove(pane)
            whole.start, whole.end = min(whole.start, pane.start), max(whole.end, pane.end)
            whole.values += pane.values
            whole.counted += pane.counted
        whole.fires_at_end = whole.last > self._clock and bool(whole.values)
        panes.append(whole)
        return whole

    def _trigger(self, panes: list[Pane], pane: Pane) -> None:
        if self.trigger == "time":
            if pane.last <= self._clock:
                self._fire(pane)
            else:
                pane.fires_at_end = True
            return
        kind, size = self.trigger
        pane.counted += 1
        if pane.counted >= size:
            pane.counted = 0
            self._fire(pane)
            if kind == "purge":
                pane.values.clear()

    def _fire(self, pane: Pane) -> None:
        if pane.values:
            self._result.append(Record(self.fold(pane.values), pane.last))

    def _advance(self, clock: int) -> None:
        """Fire the timers in the order of time, and delete each window at its end plus the lateness."""
        self._clock = clock
        due = [(pane.last, key, pane) for key, panes in self._panes.items() for pane in panes if pane.last <= clock]
        for _, key, pane in sorted(due, key=lambda timer: timer[:2]):
            if pane.fires_at_end and self.trigger == "time":
                pane.fires_at_end = False
                self._fire(pane)
            if pane.last + self.lateness <= clock:
                self._panes[key].remove(pane)


# --- two streams -----------------------------------------------------------------------------------------------------


def window_join(left: History, right: History, key: Key, assign: Any, pair: Callable[[Any, Any], Any]) -> History:
    """Return all pairs of a key in a window when the window ends."""

    def fold(values: list[Any]) -> list[Any]:
        return [pair(a, b) for side_a, a in values if side_a == 0 for side_b, b in values if side_b == 1]

    tagged = [each(history, lambda v, side=side: [(side, v)]) for side, history in enumerate((left, right))]
    windows = Windows(lambda v: key(v[1]), fold, assign)
    joined, _ = windows.run(union(tagged))
    return each(joined, lambda pairs: pairs)


def interval_join(
    left: History, right: History, key: Key, lower: int, upper: int, pair: Callable[[Any, Any], Any]
) -> History:
    """Return the pairs with left time + lower <= right time <= left time + upper, at the later of both times.

    A record that is behind the watermark when it arrives has no partner.
    """
    tagged = [each(history, lambda v, side=side: [(side, v)]) for side, history in enumerate((left, right))]
    seen: dict[Any, list[tuple[int, Any, int]]] = defaultdict(list)
    clock = START
    result: History = []
    for item in union(tagged):
        if isinstance(item, Watermark):
            clock = item.time
            result.append(item)
            continue
        if item.time < clock:
            continue
        side, value = item.value
        for other_side, other, time in seen[key(value)]:
            first, second = (item.time, time) if side == 0 else (time, item.time)
            if side != other_side and first + lower <= second <= first + upper:
                joined = pair(value, other) if side == 0 else pair(other, value)
                result.append(Record(joined, max(first, second)))
        seen[key(value)].append((side, value, item.time))
    return result
