"""Joins of windows: the rows of the same window of both sides meet when the window ends."""

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
from penstock.sql.operators.windows.assigners import WindowClock
from penstock.sql.plan.joins import OUTER
from penstock.sql.plan.windows import WindowJoin
from penstock.state.descriptors import MapStateDescriptor


class WindowJoinFunction(KeyedCoProcessFunction):
    """The joined rows of each window of a key. The state of a side is a map from the end of a window to its rows."""

    def __init__(self, node: WindowJoin, zone: str) -> None:
        self._spec, self._zone = node.spec, zone
        self._clocks = tuple(map(WindowClock, node.windows))
        self._starts = tuple(window.start_index for window in node.windows)
        self._is_session = node.windows[0].kind == "session"
        self._nulls = null_keys(node.spec)
        self._padding = tuple((None,) * len(columns) for columns in node.spec.columns)
        condition_of(node.spec, zone)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._matches: Matches | None = condition_of(self._spec, self._zone)
        open_functions(self._spec, runtime_context)
        self._rows = [
            runtime_context.get_map_state(MapStateDescriptor(f"{side}-records")) for side in ("left", "right")
        ]
        metrics = runtime_context.get_metrics_group()
        self._late = [metrics.counter(f"{side}NumLateRecordsDropped") for side in ("left", "right")]

    def close(self) -> None:
        close_functions(self._spec)

    def process_element1(self, value: SqlRow, ctx: KeyedCoProcessFunction.Context) -> None:
        self._add(value, 0, ctx)

    def process_element2(self, value: SqlRow, ctx: KeyedCoProcessFunction.Context) -> None:
        self._add(value, 1, ctx)

    def _add(self, row: SqlRow, side: int, ctx: KeyedCoProcessFunction.Context) -> None:
        clock = self._clocks[side]
        for end in clock.ends(row, ctx):
            timer = clock.timer(end)
            if clock.is_over(timer, ctx):
                self._late[side].inc()
                continue
            window: Any = (row[self._starts[side] or 0] // 1000, end) if self._is_session else end
            rows = self._rows[side].get(window)
            if rows is None:
                clock.register(timer, ctx)
                rows = []
            rows.append(row)
            self._rows[side].put(window, rows)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> list[SqlRow]:
        kept = (window[1] if self._is_session else window for state in self._rows for window in state)
        ends = self._clocks[0].ends_at(timestamp, kept)
        windows: set[Any] = set(ends)
        if self._is_session:
            windows = {window for state in self._rows for window in state if window[1] in ends}
        out: list[SqlRow] = []
        for window in sorted(windows):
            left, right = (state.get(window) or [] for state in self._rows)
            for state in self._rows:
                state.remove(window)
            out += self._joined(left, right)
        return out

    def _joined(self, left: list[SqlRow], right: list[SqlRow]) -> list[SqlRow]:
        kind, matched, out = self._spec.kind, set(), []
        partners = [row for row in enumerate(right) if not self._is_null(row[1], 1)]
        for row in left:
            found = [] if self._is_null(row, 0) else self._partners(row, partners)
            if kind in OUTER:
                matched.update(found)
                out += [row + right[place] for place in found]
                if not found and OUTER[kind][0]:
                    out.append(row + self._padding[1])
            elif bool(found) == (kind == "SEMI"):
                out.append(row)
        if kind in OUTER and OUTER[kind][1]:
            out += [self._padding[0] + row for place, row in enumerate(right) if place not in matched]
        return out

    def _partners(self, row: SqlRow, right: list[tuple[int, SqlRow]]) -> list[int]:
        matches = self._matches
        return [place for place, partner in right if matches is None or matches(row, partner)]

    def _is_null(self, row: SqlRow, side: int) -> bool:
        return any(row[index] is None for index in self._nulls[side])
