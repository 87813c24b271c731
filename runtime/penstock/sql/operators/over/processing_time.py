"""Processing-time OVER aggregates: rows are in the order of their arrival."""

from __future__ import annotations

from penstock.datastream.functions import KeyedProcessFunction
from penstock.sql.operators.over.base import OverFunction
from penstock.sql.operators.rows import SqlRow


class ArrivedOverFunction(OverFunction):
    """A frame of all rows before the row, or of a number of rows. The result of a row follows directly."""

    def process_element(self, value: SqlRow, ctx: KeyedProcessFunction.Context) -> list[SqlRow]:
        self._retention.extend(ctx)
        accumulators, preceding = self._current(), self._node.preceding
        if preceding is not None:
            kept = self._rows.get(0) or []
            if len(kept) > preceding:
                self._retract(accumulators, kept[0])
                kept = kept[1:]
            self._rows.put(0, [*kept, value])
        self._add(accumulators, value)
        self._accumulators.update(accumulators)
        return [self._result(accumulators, value)]

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> None:
        if self._retention.is_over(timestamp):
            self._accumulators.clear()
            self._rows.clear()


class ArrivedRangeOverFunction(OverFunction):
    """A frame of the rows that arrived in a range of time. The results of a millisecond follow in the next millisecond."""

    def process_element(self, value: SqlRow, ctx: KeyedProcessFunction.Context) -> None:
        now = ctx.timer_service().current_processing_time()
        if self._append(now, value):
            ctx.timer_service().register_processing_time_timer(now + 1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> list[SqlRow]:
        now, range_ms = timestamp - 1, self._node.preceding or 0
        accumulators = self._current()
        for time in sorted(self._rows.keys()):
            if now - time <= range_ms:
                break
            for row in self._rows.get(time) or []:
                self._retract(accumulators, row)
            self._rows.remove(time)
        rows = self._rows.get(now)
        if rows is None:
            self._accumulators.clear() if self._rows.is_empty() else self._accumulators.update(accumulators)
            return []
        for row in rows:
            self._add(accumulators, row)
        self._accumulators.update(accumulators)
        ctx.timer_service().register_processing_time_timer(now + range_ms + 2)
        return [self._result(accumulators, row) for row in rows]
