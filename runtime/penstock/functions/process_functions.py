"""Process functions, which get every record with its timestamp, state, timers and side outputs.

Results are yielded or returned as an iterable, and None means no results. A result `tag, value` with an `OutputTag` goes to the side output
of the tag. `ctx.output(tag, value)` does the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from penstock.functions.function import Function

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.functions.output_tag import OutputTag
    from penstock.functions.time_domain import TimeDomain
    from penstock.functions.timer_service import TimerService
    from penstock.state.descriptors import (
        BroadcastState,
        MapStateDescriptor,
        ReadOnlyBroadcastState,
        State,
        StateDescriptor,
    )


class _Context(ABC):
    """The context that every process function has while it handles a record."""

    @abstractmethod
    def timer_service(self) -> TimerService:
        """Return the clocks, and on keyed streams the timers."""

    @abstractmethod
    def timestamp(self) -> int:
        """Return the event time of the record or the time of the timer, in ms.

        It is None if records have no event time. The type omits None, as PyFlink's type does.
        """

    @abstractmethod
    def output(self, output_tag: OutputTag, value: Any) -> None:
        """Send a value to a side output."""


class _KeyedContext(_Context):
    @abstractmethod
    def get_current_key(self) -> Any: ...


class ProcessFunction(Function):
    """A function of one record at a time, with its timestamp and side outputs.

    >>> class Split(ProcessFunction):
    ...     def process_element(self, value, ctx):
    ...         yield value if value >= 0 else (NEGATIVE, value)
    """

    class Context(_Context):
        """The context of the current record."""

    class OnTimerContext(Context):
        """The context of the timer that fires. Timers exist only if the function runs on a keyed stream."""

        @abstractmethod
        def time_domain(self) -> TimeDomain: ...

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessFunction.Context, /) -> Any: ...

    def on_timer(self, timestamp: int, ctx: ProcessFunction.OnTimerContext, /) -> Any:
        """Handle a timer that fires. `timestamp` is the time for which the timer was registered (ms)."""


class KeyedProcessFunction(Function):
    """A function of one record at a time, with keyed state and timers.

    >>> class CountSilence(KeyedProcessFunction):
    ...     def process_element(self, value, ctx):
    ...         ctx.timer_service().register_event_time_timer(ctx.timestamp() + 60_000)
    ...     def on_timer(self, timestamp, ctx):
    ...         yield ctx.get_current_key(), timestamp
    """

    class Context(_KeyedContext):
        """The context of the current record."""

    class OnTimerContext(Context):
        """The context of the timer that fires."""

        @abstractmethod
        def time_domain(self) -> TimeDomain: ...

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context, /) -> Any: ...

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext, /) -> Any:
        """Handle a timer that fires. `timestamp` is the time for which the timer was registered (ms)."""


class CoProcessFunction(Function):
    """A function of the records of two connected streams."""

    class Context(_Context):
        """The context of the current record."""

    class OnTimerContext(Context):
        """The context of the timer that fires. Timers exist only if both streams are keyed."""

        @abstractmethod
        def time_domain(self) -> TimeDomain: ...

    @abstractmethod
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context, /) -> Any: ...

    @abstractmethod
    def process_element2(self, value: Any, ctx: CoProcessFunction.Context, /) -> Any: ...

    def on_timer(self, timestamp: int, ctx: CoProcessFunction.OnTimerContext, /) -> Any:
        """Handle a timer that fires. `timestamp` is the time for which the timer was registered (ms)."""


class KeyedCoProcessFunction(Function):
    """A function of the records of two streams connected by key. Both inputs share the state of the key."""

    class Context(_KeyedContext):
        """The context of the current record."""

    class OnTimerContext(Context):
        """The context of the timer that fires."""

        @abstractmethod
        def time_domain(self) -> TimeDomain: ...

    @abstractmethod
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context, /) -> Any: ...

    @abstractmethod
    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context, /) -> Any: ...

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext, /) -> Any:
        """Handle a timer that fires. `timestamp` is the time for which the timer was registered (ms)."""


class BaseBroadcastProcessFunction(Function):
    """The base of the broadcast process functions."""

    class BaseContext(ABC):
        @abstractmethod
        def timestamp(self) -> int:
            """Return the event time of the record in ms.

            It is None if records have no event time. The type omits None, as PyFlink's type does.
            """

        @abstractmethod
        def current_processing_time(self) -> int: ...

        @abstractmethod
        def current_watermark(self) -> int: ...

        @abstractmethod
        def output(self, output_tag: OutputTag, value: Any) -> None:
            """Send a value to a side output."""

    class Context(BaseContext):
        """The context of the broadcast side. The function may write the broadcast state, and must write the same values in all subtasks."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]: ...

    class ReadOnlyContext(BaseContext):
        """The context of the side that is not broadcast. The function can only read the broadcast state, so the state stays the same in all
        subtasks.
        """

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]: ...


class BroadcastProcessFunction(BaseBroadcastProcessFunction):
    """A function of a stream and a broadcast stream. Every subtask gets all broadcast records, such as rules."""

    class Context(BaseBroadcastProcessFunction.Context):
        """The context of a broadcast record."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """The context of a record of the other stream."""

    @abstractmethod
    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext, /) -> Any: ...

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context, /) -> Any: ...


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction):
    """A function of a keyed stream and a broadcast stream. The keyed side has keyed state and timers."""

    class Context(BaseBroadcastProcessFunction.Context):
        """The context of a broadcast record. No key is current, so the function can access keyed state only for all keys together
        (`apply_to_keyed_state`).
        """

        @abstractmethod
        def apply_to_keyed_state(
            self, state_descriptor: StateDescriptor, function: Callable[[Any, State], None]
        ) -> None:
            """Call `function(key, state)` for every key that has a value in the state."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """The context of a record of the keyed stream."""

        @abstractmethod
        def timer_service(self) -> TimerService: ...

        @abstractmethod
        def get_current_key(self) -> Any: ...

    class OnTimerContext(ReadOnlyContext):
        """The context of the timer that fires."""

        @abstractmethod
        def time_domain(self) -> TimeDomain: ...

        @abstractmethod
        def get_current_key(self) -> Any: ...

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext, /) -> Any: ...

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context, /) -> Any: ...

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext, /) -> Any:
        """Handle a timer that fires. `timestamp` is the time for which the timer was registered (ms)."""
