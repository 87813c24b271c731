"""What a window assigner is: it says which windows a record belongs to (T34)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.common.errors import InvalidJob
from penstock.common.time import TimeLike, as_millis
from penstock.windowing.windows import TimeWindowSerializer, Window, WindowSerializer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from penstock.functions.function import RuntimeContext
    from penstock.windowing.trigger import Trigger

T = TypeVar("T")
W = TypeVar("W", bound=Window)
W2 = TypeVar("W2", bound=Window)

NO_TIMESTAMP = -(2**63)
"""What a record without event time carries."""


class WindowAssigner(ABC, Generic[T, W]):
    """Maps a record to no, one or many windows. Write a subclass for windows of your own (E37)."""

    class WindowAssignerContext(ABC):
        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Wall clock in ms."""

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """State asked for here is the key's, not the window's."""

    @abstractmethod
    def assign_windows(self, element: T, timestamp: int, context: WindowAssignerContext) -> Collection[W]:
        """The windows of `element`; `timestamp` in ms, the smallest int64 if the record has none."""

    @abstractmethod
    def get_default_trigger(self, env: object = None) -> Trigger[T, W]:
        """The trigger where the program names none; an explicit one replaces it (T40). `env` is None."""

    def get_window_serializer(self) -> WindowSerializer[Any]:
        """How the windows are written into state; `TimeWindow`'s unless overridden."""
        return TimeWindowSerializer()

    @abstractmethod
    def is_event_time(self) -> bool:
        """True: the window ends by the watermark; False: by the wall clock."""


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows may merge: sessions (T30)."""

    class MergeCallback(ABC, Generic[W2]):
        @abstractmethod
        def merge(self, to_be_merged: Iterable[W2], merge_result: W2) -> None:
            """The windows `to_be_merged` become `merge_result`."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergingWindowAssigner.MergeCallback[W]) -> None:
        """Calls `callback.merge` for every group of `windows` that becomes one."""


def check_merging(assigner: WindowAssigner[Any, Any], trigger: Trigger[Any, Any]) -> None:
    """
    Raises:
        InvalidJob: the windows merge, and the trigger cannot.
    """
    if isinstance(assigner, MergingWindowAssigner) and not trigger.can_merge():
        raise InvalidJob(
            f"the windows of {assigner!r} merge, but {type(trigger).__name__} cannot merge its state",
            remedy="implement can_merge and on_merge in the trigger, or use windows that do not merge",
        )


def positive_millis(length: TimeLike, what: str) -> int:
    """Whole ms of a length of time that must be positive; `what` names it in the error."""
    millis = as_millis(length, what)
    if millis <= 0:
        raise InvalidJob(f"{what} must be positive, not {millis} ms", remedy="give at least one millisecond")
    return millis


def event_time_of(timestamp: int) -> int:
    """The timestamp, unless the record has none."""
    if timestamp == NO_TIMESTAMP:
        raise InvalidJob(
            "the record has no timestamp, but its window is an event-time window",
            remedy="call assign_timestamps_and_watermarks before the window, or use a processing-time window",
        )
    return timestamp
