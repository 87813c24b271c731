"""Process functions: every record with its timestamp, state, timers and side outputs.

Results are yielded or returned as an iterable; None means none. A pair of an `OutputTag` and a value goes to that side
output, as does `ctx.output(tag, value)`.
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
    """What every process function may ask while it handles a record."""

    @abstractmethod
    def timer_service(self) -> TimerService:
        """The clocks; timers on keyed streams only."""

    @abstractmethod
    def timestamp(self) -> int:
        """Event time of the record, or time of the timer, in ms. None where records carry no event time: the type
        leaves that away, as PyFlink's does."""

    @abstractmethod
    def output(self, output_tag: OutputTag, value: Any) -> None:
        """Sends a value to a side output."""


class _KeyedContext(_Context):
    @abstractmethod
    def get_current_key(self) -> Any: ...


class ProcessFunction(Function):
    """A record at a time, with its timestamp and side outputs.

    >>> class Split(ProcessFunction):
    ...     def process_element(self, value, ctx):
    ...         yield value if value >= 0 else (NEGATIVE, value)
    """

    class Context(_Context):
        """Of the record being processed."""

    class OnTimerContext(Context):
        """Of the timer that fires; only where the function runs on a keyed stream."""

        @abstractmethod
        def time_domain(self) -> TimeDomain: ...

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any: ...

    def on_timer(self, timestamp: int, ctx: ProcessFunction.OnTimerContext) -> Any:
        """A timer fires: `timestamp` is what it was registered for (ms)."""


class KeyedProcessFunction(Function):
    """A record at a time, with keyed state and timers.

    >>> class CountSilence(KeyedProcessFunction):
    ...     def process_element(self, value, ctx):
    ...         ctx.timer_service().register_event_time_timer(ctx.timestamp() + 60_000)
    ...     def on_timer(self, timestamp, ctx):
    ...         yield ctx.get_current_key(), timestamp
    """

    class Context(_KeyedContext):
        """Of the record being processed."""

    class OnTimerContext(Context):
        """Of the timer that fires."""

        @abstractmethod
        def time_domain(self) -> TimeDomain: ...

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any: ...

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        """A timer fires: `timestamp` is what it was registered for (ms)."""


class CoProcessFunction(Function):
    """The records of two connected streams."""

    class Context(_Context):
        """Of the record being processed."""

    class OnTimerContext(Context):
        """Of the timer that fires; only where both streams are keyed."""

        @abstractmethod
        def time_domain(self) -> TimeDomain: ...

    @abstractmethod
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Any: ...

    @abstractmethod
    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Any: ...

    def on_timer(self, timestamp: int, ctx: CoProcessFunction.OnTimerContext) -> Any:
        """A timer fires: `timestamp` is what it was registered for (ms)."""


class KeyedCoProcessFunction(Function):
    """The records of two streams connected by key; both sides share the state of the key."""

    class Context(_KeyedContext):
        """Of the record being processed."""

    class OnTimerContext(Context):
        """Of the timer that fires."""

        @abstractmethod
        def time_domain(self) -> TimeDomain: ...

    @abstractmethod
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any: ...

    @abstractmethod
    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any: ...

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Any:
        """A timer fires: `timestamp` is what it was registered for (ms)."""


class BaseBroadcastProcessFunction(Function):
    """What the broadcast process functions have in common."""

    class BaseContext(ABC):
        @abstractmethod
        def timestamp(self) -> int:
            """Event time of the record in ms. None where records carry no event time: the type leaves that away, as
            PyFlink's does."""

        @abstractmethod
        def current_processing_time(self) -> int: ...

        @abstractmethod
        def current_watermark(self) -> int: ...

        @abstractmethod
        def output(self, output_tag: OutputTag, value: Any) -> None:
            """Sends a value to a side output."""

    class Context(BaseContext):
        """On the broadcast side: it may write the broadcast state, alike in all subtasks."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]: ...

    class ReadOnlyContext(BaseContext):
        """On the other side: it may only read, so that the subtasks cannot diverge."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]: ...


class BroadcastProcessFunction(BaseBroadcastProcessFunction):
    """A stream and a broadcast one: rules for all, records for one."""

    class Context(BaseBroadcastProcessFunction.Context):
        """Of a broadcast record."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """Of a record of the other stream."""

    @abstractmethod
    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Any: ...

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> Any: ...


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction):
    """A keyed stream and a broadcast one. The keyed side has keyed state and timers."""

    class Context(BaseBroadcastProcessFunction.Context):
        """Of a broadcast record: no current key, so keyed state is reached for all keys only."""

        @abstractmethod
        def apply_to_keyed_state(
            self, state_descriptor: StateDescriptor, function: Callable[[Any, State], None]
        ) -> None:
            """Calls `function(key, state)` for every key that has a value in the state."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """Of a record of the keyed stream."""

        @abstractmethod
        def timer_service(self) -> TimerService: ...

        @abstractmethod
        def get_current_key(self) -> Any: ...

    class OnTimerContext(ReadOnlyContext):
        """Of the timer that fires."""

        @abstractmethod
        def time_domain(self) -> TimeDomain: ...

        @abstractmethod
        def get_current_key(self) -> Any: ...

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Any: ...

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> Any: ...

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Any:
        """A timer fires: `timestamp` is what it was registered for (ms)."""
