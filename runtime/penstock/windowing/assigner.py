"""The base class of window assigners. An assigner decides to which windows a record belongs."""

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
"""Timestamp of a record without event time."""


class WindowAssigner(ABC, Generic[T, W]):
    """An assigner of records to zero, one or many windows. Write a subclass for a new kind of windows."""

    class WindowAssignerContext(ABC):
        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the wall clock in ms."""

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """Return the runtime context. Its state belongs to the key, not to the window."""

    @abstractmethod
    def assign_windows(self, element: T, timestamp: int, context: WindowAssignerContext, /) -> Collection[W]:
        """Return the windows of `element`.

        `timestamp` is in ms. It is the smallest int64 if the record has no event time.
        """

    @abstractmethod
    def get_default_trigger(self, env: object = None, /) -> Trigger[T, W]:
        """Return the trigger for programs that set no trigger. `env` is None."""

    def get_window_serializer(self) -> WindowSerializer[Any]:
        """Return the serializer of the windows in state. The default is that of `TimeWindow`."""
        return TimeWindowSerializer()

    @abstractmethod
    def is_event_time(self) -> bool:
        """Return True if the watermark ends the window, False if the wall clock does."""


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows may merge, such as sessions."""

    class MergeCallback(ABC, Generic[W2]):
        @abstractmethod
        def merge(self, to_be_merged: Iterable[W2], merge_result: W2) -> None:
            """Replace the windows `to_be_merged` with `merge_result`."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergingWindowAssigner.MergeCallback[W], /) -> None:
        """Call `callback.merge` for every group of `windows` that becomes one window."""


def check_merging(assigner: WindowAssigner[Any, Any], trigger: Trigger[Any, Any]) -> None:
    """Check that the trigger supports merging if the windows merge.

    Raises:
        InvalidJob: the windows merge, but the trigger does not support merging.
    """
    if isinstance(assigner, MergingWindowAssigner) and not trigger.can_merge():
        raise InvalidJob(
            f"the windows of {assigner!r} merge, but {type(trigger).__name__} cannot merge its state",
            remedy="implement can_merge and on_merge in the trigger, or use windows that do not merge",
        )


def positive_millis(length: TimeLike, name: str) -> int:
    """Return a positive length of time in whole ms. The error calls it `name`."""
    millis = as_millis(length, name)
    if millis <= 0:
        raise InvalidJob(f"{name} must be positive, not {millis} ms", remedy="use at least 1 ms")
    return millis


def event_time_of(timestamp: int) -> int:
    """Return the timestamp. Raise an error if the record has none."""
    if timestamp == NO_TIMESTAMP:
        raise InvalidJob(
            "the record has no timestamp, but its window is an event-time window",
            remedy="call assign_timestamps_and_watermarks before the window, or use a processing-time window",
        )
    return timestamp
