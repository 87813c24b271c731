"""Triggers with other rules than the window's end: early and repeated firing, counts, differences, purging."""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.state.descriptors import ReducingStateDescriptor, ValueStateDescriptor
from penstock.windowing.assigner import positive_millis
from penstock.windowing.trigger import Trigger, TriggerResult
from penstock.windowing.windows import TimeWindow, Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.common.time import TimeLike


class ContinuousEventTimeTrigger(Trigger[Any, TimeWindow]):
    """A trigger that fires at every `interval` of event time, aligned to the epoch, and at the window's end."""

    keeps_state = True

    def __init__(self, interval: TimeLike) -> None:
        self.interval = positive_millis(interval, "interval of ContinuousEventTimeTrigger")
        self._next_fire = ReducingStateDescriptor("fire-time", min, int)

    @staticmethod
    def of(interval: TimeLike) -> ContinuousEventTimeTrigger:
        return ContinuousEventTimeTrigger(interval)

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        if ctx.get_partitioned_state(self._next_fire).get() is None:
            self._register_next(timestamp - timestamp % self.interval, window, ctx)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        if time == window.max_timestamp():
            return TriggerResult.FIRE
        next_fire = ctx.get_partitioned_state(self._next_fire)
        if next_fire.get() != time:
            return TriggerResult.CONTINUE
        next_fire.clear()
        self._register_next(time, window, ctx)
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._next_fire)
        next_fire = ctx.get_partitioned_state(self._next_fire).get()
        if next_fire is not None:
            ctx.register_event_time_timer(next_fire)
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())
        next_fire = ctx.get_partitioned_state(self._next_fire)
        time = next_fire.get()
        if time is not None:
            ctx.delete_event_time_timer(time)
            next_fire.clear()

    def _register_next(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        next_time = min(time + self.interval, window.max_timestamp())
        ctx.get_partitioned_state(self._next_fire).add(next_time)
        ctx.register_event_time_timer(next_time)


class ContinuousProcessingTimeTrigger(Trigger[Any, Window]):
    """A trigger that fires at every `interval` of the wall clock, aligned to the epoch, until the window's end."""

    keeps_state = True

    def __init__(self, interval: TimeLike) -> None:
        self.interval = positive_millis(interval, "interval of ContinuousProcessingTimeTrigger")
        self._next_fire = ReducingStateDescriptor("fire-time", min, int)

    @staticmethod
    def of(interval: TimeLike) -> ContinuousProcessingTimeTrigger:
        return ContinuousProcessingTimeTrigger(interval)

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        if ctx.get_partitioned_state(self._next_fire).get() is None:
            now = ctx.get_current_processing_time()
            self._register_next(now - now % self.interval, window, ctx)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        next_fire = ctx.get_partitioned_state(self._next_fire)
        if next_fire.get() != time:
            return TriggerResult.CONTINUE
        next_fire.clear()
        self._register_next(time, window, ctx)
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._next_fire)
        next_fire = ctx.get_partitioned_state(self._next_fire).get()
        if next_fire is not None:
            ctx.register_processing_time_timer(next_fire)

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        next_fire = ctx.get_partitioned_state(self._next_fire)
        time = next_fire.get()
        if time is not None:
            ctx.delete_processing_time_timer(time)
            next_fire.clear()

    def _register_next(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> None:
        next_time = min(time + self.interval, window.max_timestamp())
        if next_time > time:
            ctx.get_partitioned_state(self._next_fire).add(next_time)
            ctx.register_processing_time_timer(next_time)


class CountTrigger(Trigger[Any, Window]):
    """A trigger that fires at every `window_size`-th record of the window and keeps the content. `PurgingTrigger` drops it."""

    keeps_state = True

    def __init__(self, window_size: int) -> None:
        if window_size <= 0:
            raise InvalidJob(f"count of CountTrigger must be positive, not {window_size}")
        self._window_size = window_size
        self._count = ReducingStateDescriptor("count", add, int)

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        return CountTrigger(window_size)

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        count = ctx.get_partitioned_state(self._count)
        count.add(1)
        if count.get() < self._window_size:
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._count)

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self._count).clear()


class PurgingTrigger(Trigger[Any, Any]):
    """A trigger that fires when the nested trigger fires, and then drops the window's content."""

    def __init__(self, nested_trigger: Trigger[Any, Any]) -> None:
        self.nested_trigger = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger[Any, Any]) -> PurgingTrigger:
        return PurgingTrigger(nested_trigger)

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def can_merge(self) -> bool:
        return self.nested_trigger.can_merge()

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        self.nested_trigger.clear(window, ctx)


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result


class DeltaTrigger(Trigger[Any, Window]):
    """A trigger that fires when `delta(old, new)` exceeds `threshold`.

    `new` is the current record, and `old` is the record at which the trigger last fired. At first, `old` is the
    window's first record.
    """

    keeps_state = True

    def __init__(self, threshold: float, delta: Callable[[Any, Any], float], element_type: Any = None) -> None:
        self._threshold = threshold
        self._delta = delta
        self._last = ValueStateDescriptor("last-element", element_type)

    @staticmethod
    def of(threshold: float, delta: Callable[[Any, Any], float], element_type: Any = None) -> DeltaTrigger:
        return DeltaTrigger(threshold, delta, element_type)

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        last = ctx.get_partitioned_state(self._last)
        old = last.value()
        if old is None:
            last.update(element)
            return TriggerResult.CONTINUE
        if self._delta(old, element) <= self._threshold:
            return TriggerResult.CONTINUE
        last.update(element)
        return TriggerResult.FIRE

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self._last).clear()


class NeverTrigger(Trigger[Any, Any]):
    """A trigger that never fires. It is the default of `GlobalWindows`."""

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        """Do nothing, because the trigger has no state."""

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        """Do nothing, because the trigger has no state."""
