"""Windows of table functions: TUMBLE, HOP and CUMULATE. All times are milliseconds of local time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.sql.expressions import times
from penstock.sql.operators.aggregates import Aggregates
from penstock.sql.operators.rows import SqlRow, grouping_of
from penstock.sql.plan.nodes import WindowAggregate, WindowSpec
from penstock.state.descriptors import MapStateDescriptor


def window_ends(spec: WindowSpec, millis: int) -> list[int]:
    """Return the ends of the windows that contain this time.

    >>> hop = WindowSpec("hop", size_ms=10_000, step_ms=5_000, offset_ms=0, time_index=0, zone=None)
    >>> window_ends(hop, 7_000)
    [10000, 15000]
    """
    if spec.kind == "cumulate":
        start = millis - (millis - spec.offset_ms) % spec.size_ms
        first = start + (millis - start) // spec.step_ms * spec.step_ms + spec.step_ms
        return list(range(first, start + spec.size_ms + 1, spec.step_ms))
    last_start = millis - (millis - spec.offset_ms) % spec.step_ms
    starts = range(last_start, millis - spec.size_ms, -spec.step_ms)
    return sorted(start + spec.size_ms for start in starts)


def window_start(spec: WindowSpec, end: int) -> int:
    if spec.kind == "cumulate":
        return end - 1 - (end - 1 - spec.offset_ms) % spec.size_ms
    return end - spec.size_ms


class WindowAggregateFunction(KeyedProcessFunction):
    """The results of each key and window, when the watermark reaches the end of the window.

    The state of a key is a map from the end of a window to the accumulators. A row is dropped if its windows have ended.

    Args:
        floats: as in `KeyOf`.
    """

    def __init__(self, node: WindowAggregate, floats: tuple[int, ...] = ()) -> None:
        self._node = node
        self._floats = floats
        self._aggregates = Aggregates(node.calls, retracts=False)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._state = runtime_context.get_map_state(MapStateDescriptor("window-aggs"))
        self._late = runtime_context.get_metrics_group().counter("numLateRecordsDropped")

    def process_element(self, value: SqlRow, ctx: KeyedProcessFunction.Context) -> None:
        spec, timers = self._node.window, ctx.timer_service()
        micros = value[spec.time_index]
        if micros is None:
            return
        local = micros if spec.zone is None else times.to_local(micros, spec.zone)
        watermark = timers.current_watermark()
        is_late = True
        for end in window_ends(spec, local // 1000):
            last = self._instant(end) - 1
            if last <= watermark:
                continue
            is_late = False
            accumulators = self._state.get(end)
            if accumulators is None:
                accumulators = self._aggregates.create()
                timers.register_event_time_timer(last)
            self._aggregates.add(accumulators, value)
            self._state.put(end, accumulators)
        if is_late:
            self._late.inc()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[SqlRow]:
        spec = self._node.window
        micros = (timestamp + 1) * 1000
        end = (micros if spec.zone is None else times.to_local(micros, spec.zone)) // 1000
        accumulators = self._state.get(end)
        if accumulators is None:
            return
        self._state.remove(end)
        key = grouping_of(ctx.get_current_key(), self._node.grouping, self._floats)
        found: dict[str, Any] = {
            "WindowStart": window_start(spec, end) * 1000,
            "WindowEnd": end * 1000,
            "Rowtime": timestamp * 1000,
        }
        yield key + self._aggregates.results(accumulators) + tuple(found[name] for name in self._node.properties)

    def _instant(self, end: int) -> int:
        zone = self._node.window.zone
        return end if zone is None else times.to_instant(end * 1000, zone) // 1000
