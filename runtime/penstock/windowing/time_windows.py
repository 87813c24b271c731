"""Tumbling and sliding time windows. They are aligned to the epoch, half-open, and shifted by an offset."""

from __future__ import annotations

from typing import Any

from penstock.common.errors import InvalidJob
from penstock.common.program.one_time_warning import warn_short
from penstock.common.time import TimeLike, as_millis
from penstock.windowing.assigner import WindowAssigner, event_time_of, positive_millis
from penstock.windowing.trigger import EventTimeTrigger, ProcessingTimeTrigger, Trigger
from penstock.windowing.windows import MAX_LONG, TimeWindow


def _aligned(size: TimeLike, slide: TimeLike, offset: TimeLike | None, name: str) -> tuple[int, int, int]:
    shift = 0 if offset is None else as_millis(offset, f"offset of {name}")
    warn_short(size, f"size of {name}")
    size_ms, slide_ms = positive_millis(size, f"size of {name}"), positive_millis(slide, f"slide of {name}")
    if abs(shift) >= slide_ms:
        raise InvalidJob(
            f"offset of {name} is {shift} ms, which is not smaller than the {slide_ms} ms between two windows",
            remedy="take the offset modulo the size (the slide, for sliding windows)",
        )
    return size_ms, slide_ms, shift


class _TimeAssigner(WindowAssigner[Any, TimeWindow]):
    """Epoch-aligned windows of `size_ms`, one every `slide_ms`, shifted by `offset_ms`."""

    def __init__(self, size: TimeLike, slide: TimeLike, offset: TimeLike | None) -> None:
        self.size_ms, self.slide_ms, self.offset_ms = _aligned(size, slide, offset, type(self).__name__)

    def windows_at(self, timestamp: int) -> list[TimeWindow]:
        """Return all windows that hold `timestamp`, the latest first. The list is empty if the time is between two windows."""
        size = self.size_ms
        last = timestamp - (timestamp - self.offset_ms) % self.slide_ms
        if last > MAX_LONG - size:
            return [TimeWindow.of_length(start, size) for start in range(last, timestamp - size, -self.slide_ms)]
        return [TimeWindow(start, start + size) for start in range(last, timestamp - size, -self.slide_ms)]

    def __repr__(self) -> str:
        slide = "" if self.slide_ms == self.size_ms else f", slide={self.slide_ms}"
        return f"{type(self).__name__}(size={self.size_ms}{slide}, offset={self.offset_ms})"


class _EventTimeAssigner(_TimeAssigner):
    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        return self.windows_at(event_time_of(timestamp))

    def get_default_trigger(self, env: object = None) -> Trigger[Any, TimeWindow]:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


class _ProcessingTimeAssigner(_TimeAssigner):
    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        return self.windows_at(context.get_current_processing_time())

    def get_default_trigger(self, env: object = None) -> Trigger[Any, TimeWindow]:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False


class TumblingEventTimeWindows(_EventTimeAssigner):
    """Consecutive windows of one size by event time. `offset` shifts them: windows of 1 h with an offset of 15 min
    start at 00:15, 01:15 …

    >>> TumblingEventTimeWindows.of(5000).windows_at(12_345)
    [TimeWindow(start=10000, end=15000)]
    """

    def __init__(self, size: TimeLike, offset: TimeLike | None = None) -> None:
        super().__init__(size, size, offset)

    @staticmethod
    def of(size: TimeLike, offset: TimeLike | None = None) -> TumblingEventTimeWindows:
        return TumblingEventTimeWindows(size, offset)


class TumblingProcessingTimeWindows(_ProcessingTimeAssigner):
    """Consecutive windows of one size by the wall clock."""

    def __init__(self, size: TimeLike, offset: TimeLike | None = None) -> None:
        super().__init__(size, size, offset)

    @staticmethod
    def of(size: TimeLike, offset: TimeLike | None = None) -> TumblingProcessingTimeWindows:
        return TumblingProcessingTimeWindows(size, offset)


class SlidingEventTimeWindows(_EventTimeAssigner):
    """Windows of one size, a new one every `slide`, by event time.

    If slide < size, a record is in several windows. If slide > size, some records are in no window and are dropped.

    >>> SlidingEventTimeWindows.of(4000, 2000).windows_at(5000)
    [TimeWindow(start=4000, end=8000), TimeWindow(start=2000, end=6000)]
    """

    def __init__(self, size: TimeLike, slide: TimeLike, offset: TimeLike | None = None) -> None:
        super().__init__(size, slide, offset)

    @staticmethod
    def of(size: TimeLike, slide: TimeLike, offset: TimeLike | None = None) -> SlidingEventTimeWindows:
        return SlidingEventTimeWindows(size, slide, offset)


class SlidingProcessingTimeWindows(_ProcessingTimeAssigner):
    """Windows of one size, a new one every `slide`, by the wall clock."""

    def __init__(self, size: TimeLike, slide: TimeLike, offset: TimeLike | None = None) -> None:
        super().__init__(size, slide, offset)

    @staticmethod
    def of(size: TimeLike, slide: TimeLike, offset: TimeLike | None = None) -> SlidingProcessingTimeWindows:
        return SlidingProcessingTimeWindows(size, slide, offset)
