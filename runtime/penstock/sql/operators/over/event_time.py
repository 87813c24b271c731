"""Event-time OVER aggregates. A row waits until the watermark reaches its time, so rows are in order. Late rows are dropped."""

from __future__ import annotations

from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.functions.time_domain import TimeDomain
from penstock.sql.operators.over.base import OverFunction
from penstock.sql.operators.rows import SqlRow
from penstock.state.descriptors import ValueStateDescriptor


class UnboundedOverFunction(OverFunction):
    """A frame from the first row to the row (ROWS), or to the last row with the same time (RANGE)."""

    def process_element(self, value: SqlRow, ctx: KeyedProcessFunction.Context) -> None:
        self._retention.extend(ctx)
        time, timers = self._time(value), ctx.timer_service()
        if time <= timers.current_watermark():
            self._late.inc()
        elif self._append(time, value):
            timers.register_event_time_timer(time)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> list[SqlRow] | None:
        if ctx.time_domain() is TimeDomain.PROCESSING_TIME:
            if self._retention.is_over(timestamp):
                self._expire(ctx)
            return None
        rows = self._rows.get(timestamp) or []
        self._rows.remove(timestamp)
        accumulators, out = self._current(), []
        for row in rows:
            self._add(accumulators, row)
            if self._node.is_rows:
                out.append(self._result(accumulators, row))
        if not self._node.is_rows:
            out = [self._result(accumulators, row) for row in rows]
        self._accumulators.update(accumulators)
        self._retention.extend(ctx)
        return out

    def _expire(self, ctx: KeyedProcessFunction.OnTimerContext) -> None:
        """Clear the state, unless rows wait for the watermark."""
        if self._rows.is_empty():
            self._accumulators.clear()
        else:
            self._retention.extend(ctx)


class _BoundedOverFunction(OverFunction):
    """The base of bounded frames. A row is late if the operator has processed a later time of its key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._last = runtime_context.get_state(ValueStateDescriptor("lastTriggeringTsState"))

    def _accept(self, row: SqlRow, ctx: KeyedProcessFunction.Context) -> int | None:
        """Keep a row. Return its time, or None if it is late."""
        time, last = self._time(row), self._last.value()
        if last is not None and time <= last:
            self._late.inc()
            return None
        if self._append(time, row):
            ctx.timer_service().register_event_time_timer(time)
        return time


class RangeOverFunction(_BoundedOverFunction):
    """A frame of the rows in a range of time that ends with the time of the row.

    The state of a key is cleared when no row came for 1.5 times the range, in event time.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._cleanup = runtime_context.get_state(ValueStateDescriptor("cleanupState"))

    def process_element(self, value: SqlRow, ctx: KeyedProcessFunction.Context) -> None:
        time, range_ms = self._accept(value, ctx), self._node.preceding or 0
        if time is None:
            return
        cleanup = self._cleanup.value()
        if cleanup is None or cleanup < time + range_ms + 1:
            cleanup = time + range_ms * 3 // 2 + 1
            ctx.timer_service().register_event_time_timer(cleanup)
            self._cleanup.update(cleanup)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> list[SqlRow]:
        cleanup = self._cleanup.value()
        if cleanup is not None and cleanup <= timestamp:
            for state in (self._rows, self._accumulators, self._last, self._cleanup):
                state.clear()
            return []
        self._last.update(timestamp)
        rows = self._rows.get(timestamp)
        if rows is None:
            return []
        accumulators = self._current()
        for time in sorted(self._rows.keys()):
            if timestamp - time <= (self._node.preceding or 0):
                break
            for row in self._rows.get(time) or []:
                self._retract(accumulators, row)
            self._rows.remove(time)
        for row in rows:
            self._add(accumulators, row)
        self._accumulators.update(accumulators)
        return [self._result(accumulators, row) for row in rows]


class RowsOverFunction(_BoundedOverFunction):
    """A frame of a number of rows before the row, and the row."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._count = runtime_context.get_state(ValueStateDescriptor("processedCountState"))

    def process_element(self, value: SqlRow, ctx: KeyedProcessFunction.Context) -> None:
        self._retention.extend(ctx)
        self._accept(value, ctx)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> list[SqlRow] | None:
        if ctx.time_domain() is TimeDomain.PROCESSING_TIME:
            if self._retention.is_over(timestamp):
                self._expire(ctx)
            return None
        self._last.update(timestamp)
        self._retention.extend(ctx)
        rows = self._rows.get(timestamp) or []
        accumulators, count, out = self._current(), self._count.value() or 0, []
        oldest = sorted(time for time in self._rows if time <= timestamp)
        for row in rows:
            if count > (self._node.preceding or 0):
                self._retract(accumulators, self._take(oldest))
            else:
                count += 1
            self._add(accumulators, row)
            out.append(self._result(accumulators, row))
        self._count.update(count)
        self._accumulators.update(accumulators)
        return out

    def _take(self, times: list[int]) -> SqlRow:
        """Remove and return the oldest row. `times`: the times of the kept rows, from which used times are removed."""
        rows = self._rows.get(times[0]) or []
        if len(rows) > 1:
            self._rows.put(times[0], rows[1:])
        else:
            self._rows.remove(times.pop(0))
        found: SqlRow = rows[0]
        return found

    def _expire(self, ctx: KeyedProcessFunction.OnTimerContext) -> None:
        last = self._last.value()
        if any(last is None or time > last for time in self._rows):
            self._retention.extend(ctx)
            return
        for state in (self._rows, self._accumulators, self._count, self._last):
            state.clear()
