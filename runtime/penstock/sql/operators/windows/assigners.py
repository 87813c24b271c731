"""The windows of a row, as pairs of a start and an end in milliseconds of local time."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
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


@lru_cache(maxsize=10_000)
def end_instant(end: int, zone: str) -> int:
    """Return the instant (ms) at which a window that ends at this local time gets no more rows.

    If the clock shows the last millisecond of the window twice, the window waits for the second one, as in Flink. If the clock skips
    the last millisecond, the window ends when the clock moves forward.
    """
    last = end - 1
    first, second = (times.to_instant(last * 1000, zone, fold=fold) // 1000 for fold in (0, 1))
    if second >= first:
        return second + 1
    before, after = second, first
    while after - before > 1:  # between them, the clock moves forward
        middle = (before + after) // 2
        if times.to_local(middle * 1000, zone) // 1000 < last:
            before = middle
        else:
            after = middle
    return after


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
        return (end if zone is None else end_instant(end, zone)) - self._last

    def ends_at(self, timer: int, kept: Iterable[int]) -> list[int]:
        """Return the ends of the windows with this timer.

        Args:
            kept: ends of the windows in state. Several of them have this timer if the clock moves forward at this time.
        """
        instant, zone = timer + self._last, self._spec.zone
        if zone is None:
            return [instant]
        before, after = (times.to_local(millis * 1000, zone) // 1000 for millis in (instant - 1, instant))
        return [after] if after == before + 1 else sorted({end for end in kept if self.timer(end) == timer})

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
