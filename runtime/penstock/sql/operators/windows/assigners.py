"""The windows of a row, as pairs of a start and an end in milliseconds of local time."""

from __future__ import annotations

from typing import Protocol

from penstock.functions.timer_service import TimerService
from penstock.sql.expressions import times
from penstock.sql.operators.rows import SqlRow
from penstock.sql.plan.windows import WindowSpec

Window = tuple[int, int]


class WithTimers(Protocol):
    """A context of a process function."""

    def timer_service(self) -> TimerService: ...


def window_ends(spec: WindowSpec, millis: int) -> list[int]:
    """Return the ends of the windows that contain this time.

    >>> window_ends(WindowSpec("hop", size_ms=10_000, step_ms=5_000), 7_000)
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


class WindowClock:
    """The times of windows: the local time of a row, and the timer of a window.

    In event time, a window ends when the watermark reaches its last millisecond. In processing time, it ends with the clock.
    """

    def __init__(self, spec: WindowSpec) -> None:
        self._spec = spec
        self._last = 1 if spec.is_rowtime else 0

    def local_ms(self, row: SqlRow, ctx: WithTimers) -> int | None:
        """Return the local time of a row, or None if its time is NULL."""
        spec = self._spec
        if not spec.is_rowtime:
            micros = ctx.timer_service().current_processing_time() * 1000
        else:
            micros = row[spec.time_index]
            if micros is None:
                return None
        return (micros if spec.zone is None else times.to_local(micros, spec.zone)) // 1000

    def ends(self, row: SqlRow, ctx: WithTimers) -> list[int]:
        """Return the ends of the windows of a row. A row without a time has none."""
        if self._spec.end_index is not None:
            micros = row[self._spec.end_index]
            return [] if micros is None else [micros // 1000]
        local = self.local_ms(row, ctx)
        return [] if local is None else window_ends(self._spec, local)

    def timer(self, end: int) -> int:
        """Return the time of the timer of a window with this end."""
        zone = self._spec.zone
        return (end if zone is None else times.to_instant(end * 1000, zone) // 1000) - self._last

    def end(self, timer: int) -> int:
        """Return the end of the windows with this timer."""
        micros = (timer + self._last) * 1000
        return (micros if self._spec.zone is None else times.to_local(micros, self._spec.zone)) // 1000

    def is_over(self, timer: int, ctx: WithTimers) -> bool:
        """Return whether a window with this timer has ended."""
        return self._spec.is_rowtime and timer <= ctx.timer_service().current_watermark()

    def register(self, timer: int, ctx: WithTimers) -> None:
        if self._spec.is_rowtime:
            ctx.timer_service().register_event_time_timer(timer)
        else:
            ctx.timer_service().register_processing_time_timer(timer)

    def delete(self, timer: int, ctx: WithTimers) -> None:
        if self._spec.is_rowtime:
            ctx.timer_service().delete_event_time_timer(timer)
        else:
            ctx.timer_service().delete_processing_time_timer(timer)

    def columns(self, window: Window, ctx: WithTimers) -> dict[str, int]:
        """Return the values of the columns that describe a window."""
        start, end = window
        zone = self._spec.zone
        last = end if zone is None else times.to_instant(end * 1000, zone) // 1000
        return {
            "WindowStart": start * 1000,
            "WindowEnd": end * 1000,
            "Rowtime": (last - 1) * 1000,
            "Proctime": ctx.timer_service().current_processing_time() * 1000,
        }
