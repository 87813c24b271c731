"""Sessions: windows that grow with their rows, and merge when a row closes the gap between them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.sql.operators.rows import SqlRow
from penstock.sql.operators.windows.aggregate import WindowResults
from penstock.sql.operators.windows.assigners import Window, WindowClock, WithTimers
from penstock.sql.plan.nodes import Column
from penstock.sql.plan.windows import WindowAggregate, WindowTableFunction
from penstock.state.descriptors import MapState, MapStateDescriptor


class SessionStates:
    """The sessions of a key: a map from the start of a session to its end and its content.

    Args:
        merge: adds the second content to the first.
    """

    def __init__(
        self, clock: WindowClock, gap_ms: int, state: MapState[int, list[Any]], merge: Callable[[Any, Any], None]
    ) -> None:
        self._clock, self._gap_ms, self._state, self._merge = clock, gap_ms, state, merge

    def find(self, local: int, ctx: WithTimers, create: Callable[[], Any]) -> tuple[Window, Any] | None:
        """Return the session of a row with this time, merged with the sessions that it touches. Return None if the session has ended."""
        start, end = local, local + self._gap_ms
        touched = [(s, e, content) for s, (e, content) in self._state.items() if s <= end and start <= e]
        touched.sort(key=lambda found: found[0])
        window = (min([start, *(s for s, _, _ in touched)]), max([end, *(e for _, e, _ in touched)]))
        if self._clock.is_over(self._clock.timer(window[1]), ctx):
            return None
        content = touched[0][2] if touched else create()
        for s, e, other in touched:
            if other is not content:
                self._merge(content, other)
            if (s, e) != window:
                self._state.remove(s)
        for e in {e for _, e, _ in touched} - {window[1]}:
            self._clock.delete(self._clock.timer(e), ctx)
        if window[1] not in {e for _, e, _ in touched}:
            self._clock.register(self._clock.timer(window[1]), ctx)
        return window, content

    def put(self, window: Window, content: Any) -> None:
        self._state.put(window[0], [window[1], content])

    def ended(self, timestamp: int) -> list[tuple[Window, Any]]:
        """Remove and return the sessions whose timer this is."""
        ends = self._clock.ends_at(timestamp, (end for end, _ in self._state.values()))
        found = [((s, e), content) for s, (e, content) in self._state.items() if e in ends]
        for window, _ in found:
            self._state.remove(window[0])
        return found


class SessionAggregateFunction(KeyedProcessFunction):
    """The results of each key and session."""

    def __init__(self, node: WindowAggregate, columns: tuple[Column, ...], *, changelog: bool = False) -> None:
        self._results = WindowResults(node, columns, changelog=changelog)
        self._results.aggregates.check_merge()
        self._gap_ms = node.window.size_ms

    def open(self, runtime_context: RuntimeContext) -> None:
        self._results.aggregates.open(runtime_context)
        state = runtime_context.get_map_state(MapStateDescriptor("session-aggs"))
        self._sessions = SessionStates(self._results.clock, self._gap_ms, state, self._merge)
        self._late = runtime_context.get_metrics_group().counter("numLateRecordsDropped")

    def close(self) -> None:
        self._results.aggregates.close()

    def _merge(self, accumulators: list[Any], others: list[Any]) -> None:
        accumulators[0] += others[0]
        self._results.aggregates.merge(accumulators[1], others[1])

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        local = self._results.clock.local_ms(self._results.row_of(value), ctx)
        if local is None:
            return
        found = self._sessions.find(local, ctx, partial(self._results.create, value))
        if found is None:
            self._late.inc()
            return
        window, accumulators = found
        self._results.added(accumulators, value)
        self._sessions.put(window, accumulators)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> list[SqlRow]:
        found = [self._results.result(content, window, ctx) for window, content in self._sessions.ended(timestamp)]
        return [row for row in found if row is not None]


class SessionRowsFunction(KeyedProcessFunction):
    """The rows of each session with the columns of their session, when the session ends."""

    def __init__(self, node: WindowTableFunction) -> None:
        self._clock = WindowClock(node.window)
        self._gap_ms = node.window.size_ms

    def open(self, runtime_context: RuntimeContext) -> None:
        state = runtime_context.get_map_state(MapStateDescriptor("session-rows"))
        self._sessions = SessionStates(self._clock, self._gap_ms, state, list.extend)
        self._late = runtime_context.get_metrics_group().counter("numLateRecordsDropped")

    def process_element(self, value: SqlRow, ctx: KeyedProcessFunction.Context) -> None:
        local = self._clock.local_ms(value, ctx)
        if local is None:
            return
        found = self._sessions.find(local, ctx, list)
        if found is None:
            self._late.inc()
            return
        window, rows = found
        rows.append(value)
        self._sessions.put(window, rows)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> list[SqlRow]:
        out: list[SqlRow] = []
        for window, rows in self._sessions.ended(timestamp):
            found = self._clock.columns(window, ctx)
            columns = (found["WindowStart"], found["WindowEnd"], found["Rowtime"])
            out += [row + columns for row in rows]
        return out
