"""Aggregates of windows: one result for each key and window, when the window ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.sql.operators.aggregates import Aggregates
from penstock.sql.operators.rows import INSERT, RETRACTIONS, Grouping, SqlRow
from penstock.sql.operators.windows.assigners import Window, WindowClock, window_start
from penstock.sql.plan.nodes import Column
from penstock.sql.plan.windows import WindowAggregate
from penstock.state.descriptors import MapStateDescriptor


class WindowResults:
    """The results of the windows of a node.

    Args:
        columns: columns of the input.
        changelog: whether the input has changes.
    """

    def __init__(self, node: WindowAggregate, columns: tuple[Column, ...], *, changelog: bool) -> None:
        self.node = node
        self.clock = WindowClock(node.window)
        self.aggregates = Aggregates(node.calls, retracts=node.retracts)
        self._grouping = Grouping(node.grouping, columns)
        self._changelog = changelog

    def added(self, accumulators: list[Any], value: Any) -> None:
        """Add a record to accumulators, or retract it. The first accumulator is the number of rows."""
        kind, row = value if self._changelog else (INSERT, value)
        if kind in RETRACTIONS:
            accumulators[0] -= 1
            self.aggregates.retract(accumulators[1], row)
        else:
            accumulators[0] += 1
            self.aggregates.add(accumulators[1], row)

    def row_of(self, value: Any) -> SqlRow:
        row: SqlRow = value[1] if self._changelog else value
        return row

    def create(self, value: Any) -> list[Any]:
        """Return the accumulators of the window of a record: the number of rows, the accumulators of the calls, and the values of the key."""
        return [0, self.aggregates.create(), self._grouping.stored(self.row_of(value))]

    def result(
        self, accumulators: list[Any], window: Window, ctx: KeyedProcessFunction.OnTimerContext
    ) -> SqlRow | None:
        """Return the result of a window of the current key, or None if all its rows were retracted."""
        if accumulators[0] <= 0:
            return None
        found = self.clock.columns(window, ctx)
        grouping = self._grouping.values(ctx.get_current_key(), accumulators[2])
        properties = tuple([found[name] for name in self.node.properties])
        return grouping + self.aggregates.results(accumulators[1]) + properties


class WindowAggregateFunction(KeyedProcessFunction):
    """The results of each key and window of TUMBLE, HOP and CUMULATE, or of windows that columns name.

    The state of a key is a map from the end of a window to the accumulators. A row is dropped if its windows have ended. Sessions that columns
    name can have the same end, so their key is the start and the end.
    """

    def __init__(self, node: WindowAggregate, columns: tuple[Column, ...], *, changelog: bool = False) -> None:
        self._results = WindowResults(node, columns, changelog=changelog)
        self._spec = node.window
        self._has_starts = node.window.kind == "session"

    def open(self, runtime_context: RuntimeContext) -> None:
        self._results.aggregates.open(runtime_context)
        self._state = runtime_context.get_map_state(MapStateDescriptor("window-aggs"))
        self._late = runtime_context.get_metrics_group().counter("numLateRecordsDropped")

    def close(self) -> None:
        self._results.aggregates.close()

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        results = self._results
        clock, row = results.clock, results.row_of(value)
        ends = clock.ends(row, ctx)
        is_late = bool(ends)
        for end in ends:
            timer = clock.timer(end)
            if clock.is_over(timer, ctx):
                continue
            is_late = False
            key: Any = (row[self._spec.start_index or 0] // 1000, end) if self._has_starts else end
            accumulators = self._state.get(key)
            if accumulators is None:
                accumulators = results.create(value)
                clock.register(timer, ctx)
            results.added(accumulators, value)
            self._state.put(key, accumulators)
        if is_late:
            self._late.inc()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[SqlRow]:
        kept = (key[1] if self._has_starts else key for key in self._state)
        ends = self._results.clock.ends_at(timestamp, kept)
        keys: list[Any] = [key for key in self._state if key[1] in ends] if self._has_starts else ends
        for key in keys:
            accumulators = self._state.get(key)
            if accumulators is None:
                continue
            self._state.remove(key)
            window: Window = key if self._has_starts else (window_start(self._spec, key), key)
            result = self._results.result(accumulators, window, ctx)
            if result is not None:
                yield result
