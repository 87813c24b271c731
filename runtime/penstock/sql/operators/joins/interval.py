"""Interval joins: pairs of rows whose times differ by a limited time.

Each side keeps its rows by their time, and a timer removes the rows that can have no more partners. Rows stay
until a timer fires, half of the interval after their last possible partner. So late rows have the same partners as in Flink. A row that
has no partner when it is removed is a result of an outer join.
"""

from __future__ import annotations

from typing import Any

from penstock.datastream.functions import KeyedCoProcessFunction, RuntimeContext
from penstock.sql.operators.joins.condition import (
    Matches,
    close_functions,
    condition_of,
    null_keys,
    open_functions,
)
from penstock.sql.operators.rows import SqlRow
from penstock.sql.plan.joins import IntervalJoin
from penstock.state.descriptors import MapStateDescriptor, ValueStateDescriptor

_SIDES = ("left", "right")
_END = (1 << 63) - 1
"""The watermark of the end of the input."""


class IntervalJoinFunction(KeyedCoProcessFunction):
    """The pairs of rows of one key. Both inputs and the result are insert-only."""

    def __init__(self, node: IntervalJoin, zone: str) -> None:
        spec = node.spec
        self._spec, self._zone, self._times, self._outer = spec, zone, node.times, spec.outer
        # The times of the partners of a row, relative to its time.
        self._bounds = ((-node.upper_ms, -node.lower_ms), (node.lower_ms, node.upper_ms))
        # How long the rows of a side wait for partners: a right row with time t has left partners up to t + upper.
        self._kept_ms = (-node.lower_ms, node.upper_ms)
        self._delay_ms = max(0, (node.upper_ms - node.lower_ms) // 2)
        self._nulls = null_keys(spec)
        self._padding = tuple((None,) * len(columns) for columns in spec.columns)
        condition_of(spec, zone)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._matches: Matches | None = condition_of(self._spec, self._zone)
        open_functions(self._spec, runtime_context)
        self._rows = [runtime_context.get_map_state(MapStateDescriptor(f"{side}-rows")) for side in _SIDES]
        """Maps from a time to the rows with this time, one for each side. A row is a list of the row and whether it has a partner."""
        self._timers = [runtime_context.get_state(ValueStateDescriptor(f"{side}-timer")) for side in _SIDES]

    def close(self) -> None:
        close_functions(self._spec)

    def process_element1(self, value: SqlRow, ctx: KeyedCoProcessFunction.Context) -> list[SqlRow] | None:
        return self._process(value, 0, ctx)

    def process_element2(self, value: SqlRow, ctx: KeyedCoProcessFunction.Context) -> list[SqlRow] | None:
        return self._process(value, 1, ctx)

    def _process(self, row: SqlRow, side: int, ctx: KeyedCoProcessFunction.Context) -> list[SqlRow] | None:
        if any(row[index] is None for index in self._nulls[side]):
            return [self._padded(row, side)] if self._outer[side] else None
        now = self._now(ctx)
        if self._times is None:
            time = now
        else:
            micros = row[self._times[side]]
            if micros is None:
                raise ValueError(
                    f"the time of a row of the {_SIDES[side]} side of an interval join is NULL. Filter the rows, or give them a time"
                )
            time = micros // 1000
        pairs, expired = self._joined(row, time, side, now)
        has_partner = bool(pairs)
        out = pairs + expired
        if now < time + self._kept_ms[side]:
            rows = self._rows[side].get(time) or []
            self._rows[side].put(time, [*rows, [row, has_partner]])
            if self._timers[side].value() is None:
                self._register(side, time, ctx)
        elif not has_partner and self._outer[side]:
            out.append(self._padded(row, side))
        return out

    def _now(self, ctx: KeyedCoProcessFunction.Context) -> int:
        timers = ctx.timer_service()
        return timers.current_processing_time() if self._times is None else max(timers.current_watermark(), 0)

    def _joined(self, row: SqlRow, time: int, side: int, now: int) -> tuple[list[SqlRow], list[SqlRow]]:
        """Return the pairs of a row, and the results of the expired rows of the other side, which are removed."""
        lower, upper = self._bounds[side]
        first, last = time + lower, time + upper
        partners, over = self._rows[1 - side], self._expiry(1 - side, now)
        pairs: list[SqlRow] = []
        expired: list[SqlRow] = []
        for when, kept in list(partners.items()):
            changed = first <= when <= last and self._pair(row, kept, side, pairs)
            if when <= over:
                expired += self._alone(kept, 1 - side)
                partners.remove(when)
            elif changed and self._outer[1 - side]:
                partners.put(when, kept)
        return pairs, expired

    def _pair(self, row: SqlRow, kept: list[Any], side: int, pairs: list[SqlRow]) -> bool:
        """Add the pairs of a row with the kept rows of one time. Return whether a kept row got its first partner."""
        matches, changed = self._matches, False
        for entry in kept:
            left, right = (entry[0], row) if side else (row, entry[0])
            if matches is None or matches(left, right):
                pairs.append(left + right)
                changed = changed or not entry[1]
                entry[1] = True
        return changed

    def _alone(self, kept: list[Any], side: int) -> list[SqlRow]:
        """Return the results of the kept rows that have no partner, if the side is outer."""
        return [self._padded(row, side) for row, has_partner in kept if not has_partner] if self._outer[side] else []

    def _expiry(self, side: int, now: int) -> int:
        """Return the latest time of the rows of a side that can have no more partners."""
        return _END if now >= _END else now - self._kept_ms[side] - 1

    def _padded(self, row: SqlRow, side: int) -> SqlRow:
        return self._padding[0] + row if side else row + self._padding[1]

    def _drop_expired(self, side: int, now: int, out: list[SqlRow]) -> int | None:
        """Remove the rows of a side that can have no more partners. Return the earliest time of the rows that stay."""
        expired = self._expiry(side, now)
        rows, earliest = self._rows[side], None
        for time, kept in list(rows.items()):
            if time > expired:
                earliest = time if earliest is None else min(earliest, time)
                continue
            out += self._alone(kept, side)
            rows.remove(time)
        return earliest

    def _register(self, side: int, time: int, ctx: KeyedCoProcessFunction.Context) -> None:
        """Register the timer that removes the rows of a side with this time."""
        when = time + self._kept_ms[side] + self._delay_ms + 1
        timers = ctx.timer_service()
        if self._times is None:
            timers.register_processing_time_timer(when)
        else:
            timers.register_event_time_timer(when)
        self._timers[side].update(when)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> list[SqlRow]:
        out: list[SqlRow] = []
        now = self._now(ctx)
        for side in (1, 0):
            if self._timers[side].value() == timestamp:
                earliest = self._drop_expired(side, now, out)
                if earliest is None:
                    self._timers[side].clear()
                else:
                    self._register(side, earliest, ctx)
        return out
