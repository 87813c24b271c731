"""Top-N and deduplication of windows: the first rows of each window, when it ends."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from typing import Any

from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.sql.operators.ranks import sort_key
from penstock.sql.operators.rows import SqlRow
from penstock.sql.operators.windows.assigners import WindowClock
from penstock.sql.plan.windows import WindowDeduplicate, WindowRank, WindowSpec
from penstock.state.descriptors import MapStateDescriptor


class _WindowRows(KeyedProcessFunction):
    """The base: a map from a window to its rows. A window is its end, or its start and end if it is a session."""

    def __init__(self, window: WindowSpec) -> None:
        self._clock = WindowClock(window)
        self._start = window.start_index if window.kind == "session" else None

    def open(self, runtime_context: RuntimeContext) -> None:
        self._state = runtime_context.get_map_state(MapStateDescriptor("window-rows"))
        self._late = runtime_context.get_metrics_group().counter("numLateRecordsDropped")

    def process_element(self, value: SqlRow, ctx: KeyedProcessFunction.Context) -> None:
        ends = self._clock.ends(value, ctx)
        is_late = bool(ends)
        for end in ends:
            timer = self._clock.timer(end)
            if self._clock.is_over(timer, ctx):
                continue
            is_late = False
            window: Any = end if self._start is None else (value[self._start] // 1000, end)
            rows = self._state.get(window)
            if rows is None:
                self._clock.register(timer, ctx)
            self._state.put(window, self._with(rows or [], value))
        if is_late:
            self._late.inc()

    @abstractmethod
    def _with(self, rows: list[SqlRow], row: SqlRow) -> list[SqlRow]:
        """Return the rows of a window after another row."""

    def _results(self, rows: list[SqlRow]) -> list[SqlRow]:
        return rows

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> list[SqlRow]:
        kept = (window if self._start is None else window[1] for window in self._state)
        ends = self._clock.ends_at(timestamp, kept)
        windows: list[Any] = ends
        if self._start is not None:
            windows = sorted(window for window in self._state if window[1] in ends)
        out: list[SqlRow] = []
        for window in windows:
            out += self._results(self._state.get(window) or [])
            self._state.remove(window)
        return out


class WindowRankFunction(_WindowRows):
    """The rows of each window and partition with the row numbers `first` to `last`."""

    def __init__(self, node: WindowRank) -> None:
        super().__init__(node.window)
        self._node = node

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._key = sort_key(self._node.order)

    def _with(self, rows: list[SqlRow], row: SqlRow) -> list[SqlRow]:
        rows.insert(bisect_right(rows, self._key(row), key=self._key), row)
        return rows[: self._node.last]

    def _results(self, rows: list[SqlRow]) -> list[SqlRow]:
        first = self._node.first
        found = rows[first - 1 :]
        return [(*row, first + i) for i, row in enumerate(found)] if self._node.output_row_number else found


class WindowDeduplicateFunction(_WindowRows):
    """The first or last row of each window and partition."""

    def __init__(self, node: WindowDeduplicate) -> None:
        super().__init__(node.window)
        self._time, self._keep_last = node.time_index, node.keep_last

    def _with(self, rows: list[SqlRow], row: SqlRow) -> list[SqlRow]:
        if not rows:
            return [row]
        former, time = rows[0][self._time], row[self._time]
        is_better = time >= former if self._keep_last else time < former
        return [row] if is_better else rows
