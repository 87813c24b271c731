"""Triggers: they decide when the content of a window is evaluated and when it is dropped.

All keys and windows share a trigger object, so the object itself keeps no state. A trigger keeps its state in
`ctx.get_partitioned_state`, whose scope is the key and the window, and in timers. `clear` must remove both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.common.errors import InvalidJob
from penstock.windowing.windows import TimeWindow, Window

if TYPE_CHECKING:
    from penstock.functions.operator_context import MetricSink
    from penstock.state.descriptors import StateDescriptor

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class TriggerResult(Enum):
    """The action on a window.

    FIRE evaluates the window and keeps its content. PURGE drops the content and calls the window function's `clear`.
    FIRE_AND_PURGE does both, in this order.
    """

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        return self.value[0]

    def is_purge(self) -> bool:
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """Base of all triggers, built-in and user-written.

    A trigger for merging windows (sessions) must return True from `can_merge` and merge its state in `on_merge`.
    """

    keeps_state = False
    """Whether a built-in trigger keeps state for each window. Another trigger class could not read that state."""

    class TriggerContext(ABC):
        """The clocks, timers and state of one key and window."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the wall clock in ms."""

        @abstractmethod
        def get_metric_group(self) -> MetricSink | None: ...

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Return the watermark in ms; the smallest int64 before the first watermark."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Request a call of `on_processing_time` at `time` (ms) for this key and window."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Request a call of `on_event_time` for this key and window when the watermark reaches `time` (ms)."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None: ...

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None: ...

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """Return the state handle. Its scope is this key and window during the call."""

    class OnMergeContext(TriggerContext):
        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Move the state of the merged windows to the window that results.

            Only list, reducing and aggregating state can be merged.
            """

    @abstractmethod
    def on_element(self, element: T, timestamp: int, window: W, ctx: TriggerContext, /) -> TriggerResult: ...

    def on_processing_time(self, time: int, window: W, ctx: TriggerContext, /) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: W, ctx: TriggerContext, /) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return False

    def on_merge(self, window: W, ctx: OnMergeContext, /) -> None:
        """Use `ctx` to merge the state of the windows that have become `window`."""
        raise InvalidJob(
            f"{type(self).__name__} cannot merge windows",
            remedy="implement can_merge and on_merge, or use a window assigner that does not merge",
        )

    @abstractmethod
    def clear(self, window: W, ctx: TriggerContext, /) -> None:
        """Remove the trigger state and timers of a window that has ended."""


class EventTimeTrigger(Trigger[Any, TimeWindow]):
    """A trigger that fires when the watermark passes the window's end, and again for every allowed late record."""

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        end = window.max_timestamp()
        if end <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(end)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())

    @staticmethod
    def create() -> EventTimeTrigger:
        return EventTimeTrigger()


class ProcessingTimeTrigger(Trigger[Any, TimeWindow]):
    """A trigger that fires when the wall clock passes the window's end."""

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        return ProcessingTimeTrigger()
