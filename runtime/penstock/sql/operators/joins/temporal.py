"""Temporal joins in event time: each left row gets the version of the right row that was valid at its time.

Both sides wait for the watermark. Then all left rows up to the watermark find their versions, and all versions are removed that no later row
can find. The versions of a key are in state by their start time.

A NULL key is equal to a NULL key here, as in Flink.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from penstock.datastream.functions import KeyedCoProcessFunction, RuntimeContext
from penstock.functions.time_domain import TimeDomain
from penstock.sql.operators.joins.condition import Matches, close_functions, condition_of, open_functions
from penstock.sql.operators.retention import Retention
from penstock.sql.operators.rows import INSERT, RETRACTIONS, UPDATE_BEFORE, Change, SqlRow
from penstock.sql.plan.joins import TemporalJoin
from penstock.state.descriptors import MapStateDescriptor, ValueStateDescriptor


class TemporalJoinFunction(KeyedCoProcessFunction):
    """The left rows of a key with the versions of the right table.

    Args:
        changelogs: for each input, whether its records are changes.
    """

    def __init__(self, node: TemporalJoin, zone: str, changelogs: tuple[bool, bool]) -> None:
        self._spec, self._zone, self._changelogs = node.spec, zone, changelogs
        self._times, self._is_outer = node.times, node.spec.kind == "LEFT"
        self._padding = (None,) * len(node.spec.columns[1])
        self._retention = Retention(node.ttl_ms)
        condition_of(node.spec, zone)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._matches: Matches | None = condition_of(self._spec, self._zone)
        open_functions(self._spec, runtime_context)
        self._left = runtime_context.get_map_state(MapStateDescriptor("left"))
        """A map from the order of arrival to the kind and the row."""
        self._next = runtime_context.get_state(ValueStateDescriptor("next-index"))
        self._right = runtime_context.get_map_state(MapStateDescriptor("right"))
        """A map from the start of a version to the kind and the row."""
        self._timer = runtime_context.get_state(ValueStateDescriptor("timer"))
        self._retention.open(runtime_context)

    def close(self) -> None:
        close_functions(self._spec)

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        kind, row = value if self._changelogs[0] else (INSERT, value)
        index = self._next.value() or 0
        self._next.update(index + 1)
        self._left.put(index, [kind, row])
        self._register(self._time(row, 0), ctx)
        self._retention.extend(ctx)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        kind, row = value if self._changelogs[1] else (INSERT, value)
        if kind == UPDATE_BEFORE:
            return
        time = self._time(row, 1)
        self._right.put(time, [kind, row])
        self._register(time, ctx)
        self._retention.extend(ctx)

    def _time(self, row: SqlRow, side: int) -> int:
        micros: int | None = row[self._times[side]]
        if micros is None:
            raise ValueError(
                f"the time of a row of the {('left', 'right')[side]} side of a temporal join is NULL. Filter the rows, or give them a time"
            )
        return micros // 1000

    def _register(self, time: int, ctx: KeyedCoProcessFunction.Context) -> None:
        """Register the timer of the earliest time."""
        former = self._timer.value()
        if former is not None and former <= time:
            return
        timers = ctx.timer_service()
        if former is not None:
            timers.delete_event_time_timer(former)
        timers.register_event_time_timer(time)
        self._timer.update(time)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> list[Any] | None:
        if ctx.time_domain() is TimeDomain.PROCESSING_TIME:
            if self._retention.is_over(timestamp):
                for state in (self._left, self._right, self._next, self._timer):
                    state.clear()
            return None
        self._timer.clear()
        watermark = ctx.timer_service().current_watermark()
        starts = sorted(self._right.keys())
        out, later = [], None
        for index, (kind, row) in sorted(self._left.items()):
            time = self._time(row, 0)
            if time > watermark:
                later = time if later is None else min(later, time)
                continue
            self._left.remove(index)
            out += self._joined(kind, row, starts, time)
        for start in starts[: max(bisect_right(starts, watermark) - 1, 0)]:
            self._right.remove(start)
        if later is not None:
            self._register(later, ctx)
        if later is not None or starts:
            self._retention.extend(ctx)
        else:
            self._next.clear()
        return out

    def _joined(self, kind: int, row: SqlRow, starts: list[int], time: int) -> list[Any]:
        padded = [self._out(kind, row + self._padding)] if self._is_outer else []
        place = bisect_right(starts, time)
        version = self._right.get(starts[place - 1]) if place else None
        if version is None or version[0] in RETRACTIONS:
            return padded
        if self._matches is None or self._matches(row, version[1]):
            return [self._out(kind, row + version[1])]
        return padded

    def _out(self, kind: int, row: SqlRow) -> Change | SqlRow:
        return (kind, row) if self._changelogs[0] else row
