"""The broadcast pattern: a data stream is connected with a broadcast stream, whose records every subtask receives.

Input 0 is the data side. It reads the broadcast state. It must not write this state, because the subtasks would then
have different states.

Input 1 is the broadcast side. It writes the state in the same way in all subtasks. It has no current key. On a keyed
stream it accesses keyed state only with `apply_to_keyed_state`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from penstock.common.errors import InvalidJob, KeyedStateNotAvailable
from penstock.functions.function import bind
from penstock.state.backend import apply_to_all_keys
from penstock.state.descriptors import (
    BroadcastState,
    MapStateDescriptor,
    ReadOnlyBroadcastState,
    State,
    StateDescriptor,
)
from penstock.state.key_context import NoKey
from penstock.taskmanager.operators.process import OnTimerContext, ProcessContext, TimerOperator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.functions.operator_context import OperatorContext
    from penstock.records.batch import Batch

DATA, BROADCAST = 0, 1


class ReadOnlyView(ReadOnlyBroadcastState[Any, Any]):
    """Broadcast state that refuses writes."""

    __slots__ = ("_state",)

    def __init__(self, state: BroadcastState[Any, Any]) -> None:
        self._state = state

    def get(self, key: Any, default: Any = None) -> Any:
        return self._state.get(key, default)

    def contains(self, key: Any) -> bool:
        return self._state.contains(key)

    def items(self) -> Iterable[tuple[Any, Any]]:
        return self._state.items()

    def keys(self) -> Iterable[Any]:
        return self._state.keys()

    def values(self) -> Iterable[Any]:
        return self._state.values()

    def is_empty(self) -> bool:
        return self._state.is_empty()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._state.keys())

    def clear(self) -> None:
        self._refuse()

    def put(self, key: Any, value: Any) -> None:
        self._refuse()

    def put_all(self, dict_value: Any) -> None:
        self._refuse()

    def remove(self, key: Any) -> None:
        self._refuse()

    __setitem__ = put
    __delitem__ = remove

    def _refuse(self) -> NoReturn:
        raise InvalidJob(
            "process_element and on_timer may only read broadcast state, because other subtasks would not see the change",
            remedy="change it in process_broadcast_element",
        )


NO_KEY = NoKey(
    "a broadcast record has no key, so keyed state cannot be read or written in process_broadcast_element",
    "use ctx.apply_to_keyed_state",
)
"""The current key during the processing of a broadcast record."""


class _BroadcastAccess:
    """A mix-in that finds the broadcast states of a `BroadcastProcessOperator` by descriptor."""

    _operator: Any

    def broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        states: dict[str, BroadcastState[Any, Any]] = self._operator.states
        state = states.get(descriptor.name)
        if state is None:
            raise InvalidJob(
                f"no broadcast state {descriptor.name!r}: the stream was broadcast with {', '.join(states) or 'none'}",
                remedy="pass the descriptor to broadcast(…)",
            )
        return state


class DataContext(_BroadcastAccess, ProcessContext):
    """The context of `process_element`, with read-only broadcast state."""

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
        return ReadOnlyView(self.broadcast_state(state_descriptor))


class DataTimerContext(_BroadcastAccess, OnTimerContext):
    """The context of `on_timer`, with read-only broadcast state."""

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
        return ReadOnlyView(self.broadcast_state(state_descriptor))


class BroadcastContext(_BroadcastAccess, ProcessContext):
    """The context of `process_broadcast_element`, with the broadcast state and the keyed state of all keys."""

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        return self.broadcast_state(state_descriptor)

    def apply_to_keyed_state(self, state_descriptor: StateDescriptor, function: Callable[[Any, State], None]) -> None:
        """Call `function(key, state)` for every key that has a value in the state."""
        state = self._operator.context.keyed_state
        if state is None:
            raise KeyedStateNotAvailable("the stream is not keyed", remedy="call key_by on the stream before connect")
        apply_to_all_keys(state, state_descriptor, function)
        state.key_context.key = NO_KEY


class BroadcastProcessOperator(TimerOperator):
    """`process` on a stream connected with a broadcast stream. The stream has no keys, so the operator has no timers.

    Args:
        fn: `process_element(value, ctx)` and `process_broadcast_element(value, ctx)`.
        descriptors: descriptors of the broadcast states.
    """

    method = "process_element"

    def __init__(
        self,
        fn: Any,
        descriptors: Iterable[MapStateDescriptor],
        key_selector: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(fn)
        bind(fn, "process_broadcast_element")
        self.descriptors = tuple(descriptors)
        if key_selector is not None:
            self.is_keyed = True
            self.key_selectors = (key_selector, None)

    def declare_states(self, context: OperatorContext) -> None:
        states = context.operator_state.for_functions()
        for descriptor in self.descriptors:
            states.get_broadcast_state(descriptor)

    def open(self) -> None:
        states = self.context.operator_state.for_functions()
        self.states = {d.name: states.get_broadcast_state(d) for d in self.descriptors}
        super().open()
        self._call_broadcast = bind(self.fn, "process_broadcast_element")
        self._broadcast_ctx = BroadcastContext(self)

    def make_context(self) -> DataContext:
        return DataContext(self)

    def make_timer_context(self) -> DataTimerContext:
        return DataTimerContext(self)

    def process_batch(self, batch: Batch, input_index: int = DATA) -> None:
        if input_index == DATA:
            self.run(batch, self._call, self.ctx)
            return
        state = self.context.keyed_state
        if state is not None:
            state.key_context.key = NO_KEY
        self.run(batch, self._call_broadcast, self._broadcast_ctx, BROADCAST)


class KeyedBroadcastProcessOperator(BroadcastProcessOperator):
    """`process` on a keyed stream connected with a broadcast stream. The data side has keyed state and timers."""

    def __init__(self, fn: Any, descriptors: Iterable[MapStateDescriptor], key_selector: Callable[[Any], Any]) -> None:
        super().__init__(fn, descriptors, key_selector)
