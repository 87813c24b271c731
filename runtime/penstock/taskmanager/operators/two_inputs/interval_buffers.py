"""The values of an interval join by key, in memory and in state.

A value is kept until the watermark passes the latest time that a partner of the value can have.

In state, each side keeps its values by event time in a map state. Each event time has a timer, 1 ms after the latest
time of a partner. The timer removes the values with this event time.

State is written with a snapshot, or earlier if the unwritten values would delay a barrier too much. Until then the
values of a key are lists in memory, sorted by time and cleaned up together. Values that arrive and expire between two
snapshots cause no access to state and no timer.

After the write, the values leave memory. They are read from state again when a record of their key arrives.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.records.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.taskmanager.operators.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.state.descriptors import MapState
    from penstock.state.key_context import KeyContext
    from penstock.state.timers.internal_timer_service import InternalTimerService

MAX_VALUES = 1 << 14
"""Maximum number of unwritten values. A barrier waits 70 ms for the write, or 150 ms with RocksDB.
A lower limit would write values that the next watermark removes. Between two watermarks each side gets a buffer from
each sender."""


class Side(msgspec.Struct, eq=False):
    """Values of one key on one side, in order of time.

    Attributes:
        stored: the times that have values in state, with the number of these values.
    """

    times: list[int]
    values: list[Any]
    stored: dict[int, int]

    def forget(self, until: int) -> None:
        """Drop the values of all times up to `until`."""
        times = self.times
        gone = next((place for place, time in enumerate(times) if time > until), len(times))
        del times[:gone]
        del self.values[:gone]


class Buffer(msgspec.Struct, eq=False):
    """All values of one key, in memory."""

    key: Any
    sides: tuple[Side, Side]


class Buffers:
    """The values of all keys.

    Args:
        states: for each side, the values by time.
        kept_ms: for each side, how long after its time a value is kept.
        is_empty: whether no state was restored.
    """

    def __init__(
        self,
        states: Sequence[MapState[int, list[Any]]],
        kept_ms: tuple[int, int],
        at: KeyContext,
        timers: InternalTimerService,
        *,
        is_empty: bool,
    ) -> None:
        self.in_memory: dict[Any, Buffer] = {}
        self._states = states
        self._kept_ms = kept_ms
        self._at = at
        self._timers = timers
        self._has_state = not is_empty
        self._schedule: Schedule[Buffer] = Schedule(self._last_ms)
        self._seen = 0
        timers.set_callbacks(self._on_timer, self._on_timer)

    def of(self, key: Any, until: int) -> Buffer:
        """Return all values of a key. The caller adds a value that is kept until `until` (ms)."""
        buffer = self.in_memory.get(key)
        if buffer is None:
            sides = (self._stored(key, 0), self._stored(key, 1)) if self._has_state else (_empty(), _empty())
            buffer = self.in_memory[key] = Buffer(key, sides)
            self._schedule.add(until, buffer)
        return buffer

    def _stored(self, key: Any, side: int) -> Side:
        self._at.key, self._at.namespace = key, None
        found = sorted(self._states[side].items(), key=itemgetter(0))
        return Side(
            [time for time, values in found for _ in values],
            [value for _, values in found for value in values],
            {time: len(values) for time, values in found},
        )

    # --- clean-up ---------------------------------------------------------------------------------------------

    def advance(self, watermark: int) -> None:
        """Drop the values that can have no more partners."""
        for buffer in self._schedule.take(watermark):
            last = self._last_ms(buffer)
            if last < watermark:
                del self.in_memory[buffer.key]
            else:
                self._forget(buffer, watermark)
                self._schedule.add(last, buffer)

    def _last_ms(self, buffer: Buffer) -> int:
        """Return the time until which any value of the key is kept."""
        (first, second), kept = buffer.sides, self._kept_ms
        if not first.times:
            return second.times[-1] + kept[1] if second.times else MIN_TIMESTAMP
        last = first.times[-1] + kept[0]
        return max(last, second.times[-1] + kept[1]) if second.times else last

    def _forget(self, buffer: Buffer, watermark: int) -> None:
        for side, kept in zip(buffer.sides, self._kept_ms, strict=True):
            if side.times and side.times[0] + kept < watermark:
                side.forget(watermark - kept - 1)

    def _on_timer(self, timestamp: int, key: Any, namespace: Any) -> None:
        """Remove the values of a time in state if no further partner can arrive.

        Older versions set the timers 1 ms earlier. A restored timer may therefore fire too early, and is then
        registered again.
        """
        side = namespace[0]
        kept, states = self._kept_ms[side], self._states[side]
        buffer = self.in_memory.get(key)
        for time in (timestamp - kept - 1, timestamp - kept):
            self._at.namespace = None
            if not states.contains(time):
                continue
            if time + kept < self._timers.current_watermark or timestamp == MAX_TIMESTAMP:  # no timer can be later
                states.remove(time)
                if buffer is not None:
                    buffer.sides[side].stored.pop(time, None)
            else:
                self._at.namespace = namespace
                self._timers.register_event_time_timer(time + kept + 1)

    # --- state ------------------------------------------------------------------------------------------------

    def move_timers(self, keys: Callable[[int], Iterable[Any]], watermark: int) -> None:
        """Register the timers for the current interval if the state was written for another interval.

        Args:
            keys: returns the keys of the state of one side.
        """
        for number, state in enumerate(self._states):
            kept = self._kept_ms[number]
            for key in list(keys(number)):
                self._at.key = key
                self._at.namespace = None
                for time in list(state.keys()):
                    self._at.namespace = None
                    if time + kept < watermark:
                        state.remove(time)
                    else:
                        self._at.namespace = (number,)
                        self._timers.register_event_time_timer(time + kept + 1)

    def count_records(self, records: int, watermark: int) -> None:
        """Count the records, and write the values in memory if they are too many."""
        self._seen += records
        if self._seen > MAX_VALUES // 2:
            self._seen = 0
            for buffer in self.in_memory.values():
                self._forget(buffer, watermark)
            if sum(len(side.times) for buffer in self.in_memory.values() for side in buffer.sides) > MAX_VALUES:
                self.write(watermark)

    def write(self, watermark: int) -> None:
        """Write all values that are not in state and can still have partners. Then forget all values in memory."""
        for buffer in self.in_memory.values():
            self._at.key = buffer.key
            for number, side in enumerate(buffer.sides):
                if len(side.times) > sum(side.stored.values()):
                    self._write_side(number, side, watermark)
        self.in_memory.clear()
        self._schedule.clear()

    def _write_side(self, number: int, side: Side, watermark: int) -> None:
        kept, stored = self._kept_ms[number], side.stored
        new: dict[int, list[Any]] = {}
        for time, pairs in groupby(zip(side.times, side.values, strict=True), key=itemgetter(0)):
            if time + kept >= watermark:
                values = [value for _, value in pairs]
                if stored.get(time) != len(values):
                    new[time] = values
        if not new:
            return
        self._has_state = True
        self._at.namespace = None
        self._states[number].put_all(new)
        self._at.namespace = (number,)
        for time in new:
            self._timers.register_event_time_timer(time + kept + 1)


def _empty() -> Side:
    return Side([], [], {})
