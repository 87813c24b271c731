"""The values of an interval join by key, and how they get into state and out of it.

A value is kept while a partner that is not late may come: until the watermark is beyond the last time a partner could have.
In state each side keeps its values by event time in a map state, and each time has a timer, one ms behind that last time, at
which it is removed. That is written with a snapshot, and when more values are unwritten than a barrier should have to
wait for. Until then the values of a key are lists at hand, in order of time, cleaned up as a whole; those that come and go
between two snapshots never cost an access to state or a timer. What was written is let go, and read again when a record
comes for its key.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.records.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.taskmanager.operators.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.state.backend import KeyContext
    from penstock.state.descriptors import MapState
    from penstock.state.timers.internal_timer_service import InternalTimerService

MOST_VALUES = 1 << 14
"""That are unwritten: writing them takes 70 ms, with RocksDB 150, for which a barrier waits. Fewer would be written although the next
watermark makes an end of them: between two of them a buffer of each sender comes on either side."""


class Side(msgspec.Struct, eq=False):
    """Values of one key on one side, in order of time.

    Attributes:
        stored: times that are in state, with the number of their values there.
    """

    times: list[int]
    values: list[Any]
    stored: dict[int, int]

    def forget(self, until: int) -> None:
        """Drop the values of times up to that, which is not before the first."""
        times = self.times
        gone = next((place for place, time in enumerate(times) if time > until), len(times))
        del times[:gone]
        del self.values[:gone]


class Buffer(msgspec.Struct, eq=False):
    """The values of one key at hand: all that it has."""

    key: Any
    sides: tuple[Side, Side]


class Buffers:
    """The values of all keys.

    Args:
        states: of each side: values by time.
        kept_ms: of each side: how long after its time a value is kept.
        is_empty: nothing was restored.
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
        self.at_hand: dict[Any, Buffer] = {}
        self._states = states
        self._kept_ms = kept_ms
        self._at = at
        self._timers = timers
        self._has_state = not is_empty
        self._schedule: Schedule[Buffer] = Schedule(self._last_ms)
        self._seen = 0
        timers.set_callbacks(self._on_timer, self._on_timer)

    def of(self, key: Any, until: int) -> Buffer:
        """All values of a key; one that is kept until then (ms) will be added to them."""
        buffer = self.at_hand.get(key)
        if buffer is None:
            sides = (self._stored(key, 0), self._stored(key, 1)) if self._has_state else (_empty(), _empty())
            buffer = self.at_hand[key] = Buffer(key, sides)
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
        """Drop what nothing can meet any more."""
        for buffer in self._schedule.take(watermark):
            last = self._last_ms(buffer)
            if last < watermark:
                del self.at_hand[buffer.key]
            else:
                self._forget(buffer, watermark)
                self._schedule.add(last, buffer)

    def _last_ms(self, buffer: Buffer) -> int:
        """Until when the last value of the key is kept."""
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
        """Of a time that is in state; in older snapshots the timer is at the last time itself, and may be too early."""
        side = namespace[0]
        kept, states = self._kept_ms[side], self._states[side]
        buffer = self.at_hand.get(key)
        for time in (timestamp - kept - 1, timestamp - kept):
            self._at.namespace = None
            if not states.contains(time):
                continue
            if time + kept < self._timers.current_watermark or timestamp == MAX_TIMESTAMP:  # there is no later timer
                states.remove(time)
                if buffer is not None:
                    buffer.sides[side].stored.pop(time, None)
            else:
                self._at.namespace = namespace
                self._timers.register_event_time_timer(time + kept + 1)

    # --- state ------------------------------------------------------------------------------------------------

    def saw(self, records: int, watermark: int) -> None:
        """So many records came: write the values at hand if they have become too many."""
        self._seen += records
        if self._seen > MOST_VALUES // 2:
            self._seen = 0
            for buffer in self.at_hand.values():
                self._forget(buffer, watermark)
            if sum(len(side.times) for buffer in self.at_hand.values() for side in buffer.sides) > MOST_VALUES:
                self.write(watermark)

    def write(self, watermark: int) -> None:
        """Write what is not in state yet and may still meet something; let go of everything."""
        for buffer in self.at_hand.values():
            self._at.key = buffer.key
            for number, side in enumerate(buffer.sides):
                if len(side.times) > sum(side.stored.values()):
                    self._write_side(number, side, watermark)
        self.at_hand.clear()
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
