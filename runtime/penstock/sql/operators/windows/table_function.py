"""Window table functions whose rows go on with the columns of their windows."""

from __future__ import annotations

from penstock.datastream.functions import ProcessFunction
from penstock.sql.operators.rows import SqlRow
from penstock.sql.operators.windows.assigners import WindowClock, window_ends, window_start
from penstock.sql.plan.windows import WindowTableFunction


class WindowRowsFunction(ProcessFunction):
    """A row for each window of a row, with window_start, window_end and window_time. A row whose time is NULL is dropped, as in Flink."""

    def __init__(self, node: WindowTableFunction) -> None:
        self._spec = node.window
        self._clock = WindowClock(node.window)

    def process_element(self, value: SqlRow, ctx: ProcessFunction.Context) -> list[SqlRow]:
        local = self._clock.local_ms(value, ctx)
        if local is None:
            return []
        out = []
        for end in window_ends(self._spec, local):
            found = self._clock.columns((window_start(self._spec, end), end), ctx)
            out.append((*value, found["WindowStart"], found["WindowEnd"], found["Rowtime"]))
        return out
