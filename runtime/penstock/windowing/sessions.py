"""Session windows: a key's window ends when no record arrives for a gap."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from penstock.common.program.one_time_warning import warn_short
from penstock.common.time import TimeLike
from penstock.windowing.assigner import (
    MergingWindowAssigner,
    WindowAssigner,
    event_time_of,
    positive_millis,
)
from penstock.windowing.trigger import EventTimeTrigger, ProcessingTimeTrigger, Trigger
from penstock.windowing.windows import TimeWindow


class SessionWindowTimeGapExtractor(ABC):
    """A function object that returns the gap after which a session ends, for each record. A plain function is accepted, too."""

    @abstractmethod
    def extract(self, element: Any, /) -> TimeLike:
        """Return a positive length; an int is in ms."""


GapExtractor = SessionWindowTimeGapExtractor | Callable[[Any], TimeLike]


class _SessionAssigner(MergingWindowAssigner[Any, TimeWindow]):
    """Assigner of session windows. Each record opens the window [t, t + gap). Windows that overlap or touch merge."""

    @abstractmethod
    def gap_ms(self, element: Any) -> int:
        """Return the session's gap after this record in ms."""

    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[TimeWindow]
    ) -> None:
        TimeWindow.merge_windows(windows, callback)


def merges_like_sessions(assigner: MergingWindowAssigner[Any, Any]) -> bool:
    """Return whether the assigner's windows are time windows that merge exactly if they overlap or touch."""
    return (
        type(assigner).merge_windows is _SessionAssigner.merge_windows
        and type(assigner).get_window_serializer is _SessionAssigner.get_window_serializer
    )


class _EventTimeSessions(_SessionAssigner):
    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        return [TimeWindow.of_length(event_time_of(timestamp), self.gap_ms(element))]

    def get_default_trigger(self, env: object = None) -> Trigger[Any, TimeWindow]:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


class _ProcessingTimeSessions(_SessionAssigner):
    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        now = context.get_current_processing_time()
        return [TimeWindow(now, now + self.gap_ms(element))]

    def get_default_trigger(self, env: object = None) -> Trigger[Any, TimeWindow]:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False


class _FixedGap(_SessionAssigner):
    def __init__(self, session_gap: TimeLike) -> None:
        warn_short(session_gap, f"gap of {type(self).__name__}")
        self._gap_ms = positive_millis(session_gap, f"gap of {type(self).__name__}")

    def gap_ms(self, element: Any) -> int:
        return self._gap_ms

    def __repr__(self) -> str:
        return f"{type(self).__name__}(gap={self._gap_ms})"


class _DynamicGap(_SessionAssigner):
    def __init__(self, session_window_time_gap_extractor: GapExtractor) -> None:
        self._extractor = session_window_time_gap_extractor

    def gap_ms(self, element: Any) -> int:
        extractor = self._extractor
        gap = extractor.extract(element) if isinstance(extractor, SessionWindowTimeGapExtractor) else extractor(element)
        return positive_millis(gap, "dynamic session gap")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._extractor!r})"


class DynamicEventTimeSessionWindows(_DynamicGap, _EventTimeSessions):
    """Sessions by event time whose gap depends on the record."""

    @staticmethod
    def with_dynamic_gap(extractor: GapExtractor) -> DynamicEventTimeSessionWindows:
        return DynamicEventTimeSessionWindows(extractor)


class DynamicProcessingTimeSessionWindows(_DynamicGap, _ProcessingTimeSessions):
    """Sessions by the wall clock whose gap depends on the record."""

    @staticmethod
    def with_dynamic_gap(extractor: GapExtractor) -> DynamicProcessingTimeSessionWindows:
        return DynamicProcessingTimeSessionWindows(extractor)


class EventTimeSessionWindows(_FixedGap, _EventTimeSessions):
    """Sessions by event time: a key's session ends when no record arrives for `gap`.

    >>> EventTimeSessionWindows.with_gap(900_000)
    EventTimeSessionWindows(gap=900000)
    """

    @staticmethod
    def with_gap(size: TimeLike) -> EventTimeSessionWindows:
        return EventTimeSessionWindows(size)

    @staticmethod
    def with_dynamic_gap(extractor: GapExtractor) -> DynamicEventTimeSessionWindows:
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_FixedGap, _ProcessingTimeSessions):
    """Sessions by the wall clock: a key's session ends when no record arrives for `gap`."""

    @staticmethod
    def with_gap(size: TimeLike) -> ProcessingTimeSessionWindows:
        return ProcessingTimeSessionWindows(size)

    @staticmethod
    def with_dynamic_gap(extractor: GapExtractor) -> DynamicProcessingTimeSessionWindows:
        return DynamicProcessingTimeSessionWindows(extractor)
