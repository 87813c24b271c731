"""ORDER BY a time attribute: rows wait for their time, and then go on in order."""

from __future__ import annotations

from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.sql.operators.ranks import sort_key
from penstock.sql.operators.rows import SqlRow
from penstock.sql.plan.changes import TemporalSort
from penstock.state.descriptors import MapStateDescriptor, ValueStateDescriptor


class TemporalSortFunction(KeyedProcessFunction):
    """The rows in order. In event time, late rows are dropped. In processing time, the rows of a millisecond are sorted."""

    def __init__(self, node: TemporalSort) -> None:
        self._order, self._time_index = node.order, node.time_index

    def open(self, runtime_context: RuntimeContext) -> None:
        self._rows = runtime_context.get_map_state(MapStateDescriptor("dataState"))
        self._last = runtime_context.get_state(ValueStateDescriptor("lastTriggeringTsState"))
        self._late = runtime_context.get_metrics_group().counter("numLateRecordsDropped")
        self._key = sort_key(self._order)

    def process_element(self, value: SqlRow, ctx: KeyedProcessFunction.Context) -> None:
        timers = ctx.timer_service()
        if self._time_index is None:
            time = timers.current_processing_time() + 1
        else:
            time = value[self._time_index] // 1000
            last = self._last.value()
            if last is not None and time <= last:
                self._late.inc()
                return
        rows = self._rows.get(time)
        if rows is None:
            if self._time_index is None:
                timers.register_processing_time_timer(time)
            else:
                timers.register_event_time_timer(time)
        self._rows.put(time, [*(rows or ()), value])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> list[SqlRow]:
        rows = self._rows.get(timestamp) or []
        self._rows.remove(timestamp)
        self._last.update(timestamp)
        return sorted(rows, key=self._key)
