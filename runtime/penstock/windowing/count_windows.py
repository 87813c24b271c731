"""Count windows and the global window, which no clock ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.state.descriptors import ValueStateDescriptor
from penstock.windowing.assigner import WindowAssigner
from penstock.windowing.trigger_library import CountTrigger, NeverTrigger, PurgingTrigger
from penstock.windowing.windows import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
)

if TYPE_CHECKING:
    from penstock.windowing.trigger import Trigger


_TUMBLE_COUNT = ValueStateDescriptor("tumble-count-assigner", int)
_SLIDE_COUNT = ValueStateDescriptor("slide-count-assigner", int)


class _CountWindowAssigner(WindowAssigner[Any, CountWindow]):
    """Windows of `window_size` records."""

    window_size: int

    def get_default_trigger(self, env: object = None) -> Trigger[Any, CountWindow]:
        """Return a trigger that purges when it fires. Nothing else removes a full window, because it gets no more
        records and no clock ends it.
        """
        return PurgingTrigger(CountTrigger(self.window_size))

    def get_window_serializer(self) -> CountWindowSerializer:
        return CountWindowSerializer()

    def is_event_time(self) -> bool:
        return False


class CountTumblingWindowAssigner(_CountWindowAssigner):
    """Windows of `window_size` records of one key, in the order of arrival."""

    def __init__(self, window_size: int) -> None:
        if window_size <= 0:
            raise InvalidJob(f"size of a count window must be positive, not {window_size}")
        self.window_size = window_size

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[CountWindow]:
        return [CountWindow(_next_position(context, _TUMBLE_COUNT) // self.window_size)]

    def __repr__(self) -> str:
        return f"CountTumblingWindowAssigner({self.window_size})"


class CountSlidingWindowAssigner(_CountWindowAssigner):
    """Windows of `window_size` records of one key, a new one every `window_slide` records."""

    def __init__(self, window_size: int, window_slide: int) -> None:
        if window_size <= 0 or window_slide <= 0:
            raise InvalidJob(f"size and slide of a count window must be positive, not {window_size} and {window_slide}")
        self.window_size = window_size
        self.window_slide = window_slide

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[CountWindow]:
        position = _next_position(context, _SLIDE_COUNT)
        last = position // self.window_slide
        first = max(0, -(-(position - self.window_size + 1) // self.window_slide))
        return [CountWindow(number) for number in range(last, first - 1, -1)]

    def __repr__(self) -> str:
        return f"CountSlidingWindowAssigner({self.window_size}, {self.window_slide})"


def _next_position(context: WindowAssigner.WindowAssignerContext, descriptor: ValueStateDescriptor) -> int:
    """Count this record, and return the number of earlier records of the key."""
    count = context.get_runtime_context().get_state(descriptor)
    position = count.value() or 0
    count.update(position + 1)
    return position


class GlobalWindows(WindowAssigner[Any, GlobalWindow]):
    """One window for all records of a key.

    The window never ends, and fires only with a trigger that the program sets.
    """

    @staticmethod
    def create() -> GlobalWindows:
        return GlobalWindows()

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[GlobalWindow]:
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: object = None) -> Trigger[Any, GlobalWindow]:
        return NeverTrigger()

    def get_window_serializer(self) -> GlobalWindowSerializer:
        return GlobalWindowSerializer()

    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "GlobalWindows()"
