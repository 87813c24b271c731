"""The contexts of assigners, triggers, evictors and window functions: clocks, timers and state of one key and window.

All contexts use the only key context of the operator. While a trigger runs, the namespace of the key context is the
window's. While a window function runs, the namespace is None (the key's own state). Therefore `window_state()` returns
handles that switch the namespace during each call.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.functions.function import KeyedStateStore, RuntimeContext
from penstock.functions.runtime_context import RuntimeContextImpl
from penstock.functions.window_functions import ProcessWindowFunction
from penstock.state.descriptors import (
    AggregatingState,
    AggregatingStateDescriptor,
    MergingState,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from penstock.state.owners import FUNCTION, OPERATOR
from penstock.windowing.assigner import WindowAssigner
from penstock.windowing.evictor import Evictor
from penstock.windowing.trigger import Trigger

if TYPE_CHECKING:
    from penstock.functions.operator_context import MetricSink, OperatorContext
    from penstock.functions.output_tag import OutputTag
    from penstock.state.key_context import KeyContext
    from penstock.taskmanager.operators.results import Results

TRIGGER_STATE_PREFIX = "trigger:"
"""Prefix that separates the states of triggers from those of window functions."""


class Clocks:
    """Both clocks of the operator."""

    def __init__(self, context: OperatorContext, watermark: Callable[[], int]) -> None:
        self._now = context.clock.now_ms
        self._watermark = watermark

    def get_current_processing_time(self) -> int:
        return self._now()

    def get_current_watermark(self) -> int:
        return self._watermark()

    current_processing_time = get_current_processing_time
    current_watermark = get_current_watermark


class AssignerContext(Clocks, WindowAssigner.WindowAssignerContext):
    """The context of `assign_windows`. The library's assigners and window functions have separate states."""

    def __init__(self, context: OperatorContext, watermark: Callable[[], int], assigner: object) -> None:
        super().__init__(context, watermark)
        is_of_library = type(assigner).__module__.startswith("penstock.")
        self._runtime_context = _HandleKeepingContext(context, OPERATOR if is_of_library else FUNCTION)

    def get_runtime_context(self) -> RuntimeContext:
        return self._runtime_context


class _HandleKeepingContext(RuntimeContextImpl):
    """A runtime context for code that requests its value state for every record, as assigners do."""

    def __init__(self, context: OperatorContext, owner: str) -> None:
        super().__init__(context, owner)
        self._handles: dict[str, ValueState[Any]] = {}

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        state = self._handles.get(state_descriptor.name)
        if state is None:
            state = self._handles[state_descriptor.name] = super().get_state(state_descriptor)
        return state


class EvictionContext(Clocks, Evictor.EvictorContext):
    """The context of evictors."""


class TriggerContext(Clocks, Trigger.OnMergeContext):
    """The context of triggers. The key context already points to the key and the window."""

    merged: tuple[Any, ...] = ()
    """Namespaces of the windows that have just merged into the current window."""

    def __init__(self, context: OperatorContext, watermark: Callable[[], int]) -> None:
        super().__init__(context, watermark)
        assert context.keyed_state is not None
        assert context.timers is not None
        self._backend = context.keyed_state
        self._metrics = context.metrics
        self._states: dict[tuple[str, str], Any] = {}
        self._timers = context.timers

    def get_metric_group(self) -> MetricSink | None:
        return self._metrics

    def register_processing_time_timer(self, time: int) -> None:
        self._timers.register_processing_time_timer(time)

    def register_event_time_timer(self, time: int) -> None:
        self._timers.register_event_time_timer(time)

    def delete_processing_time_timer(self, time: int) -> None:
        self._timers.delete_processing_time_timer(time)

    def delete_event_time_timer(self, time: int) -> None:
        self._timers.delete_event_time_timer(time)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        state = self._states.get((state_descriptor.kind, state_descriptor.name))
        if state is None:
            renamed = copy.copy(state_descriptor)
            renamed.name = TRIGGER_STATE_PREFIX + renamed.name
            if isinstance(renamed, AggregatingStateDescriptor):
                state = AccumulatorState(
                    renamed, self._backend.get_state(ValueStateDescriptor(renamed.name, renamed.type_info))
                )
            else:
                state = self._backend.get_state(renamed)
            self._states[state_descriptor.kind, state_descriptor.name] = state
        return state

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        state = self.get_partitioned_state(state_descriptor)
        if not isinstance(state, MergingState):
            raise InvalidJob(
                f"{state_descriptor!r} cannot be merged",
                remedy="use list, reducing or aggregating state in triggers of merging windows",
            )
        key_context = self._backend.key_context
        target = key_context.namespace
        for source in self.merged:
            key_context.namespace = source
            content = state.accumulator() if isinstance(state, AccumulatorState) else state.get()
            state.clear()
            key_context.namespace = target
            if isinstance(state, AccumulatorState):
                state.merge(content)
            elif isinstance(content, list):
                state.add_all(content)  # type: ignore[attr-defined]
            elif content is not None:
                state.add(content)


class AccumulatorState(AggregatingState[Any, Any]):
    """Aggregating state of a trigger.

    It wraps a value state that holds the accumulator, so that two accumulators can be merged.
    """

    __slots__ = ("_function", "_state")

    def __init__(self, descriptor: AggregatingStateDescriptor, state: Any) -> None:
        self._function = descriptor.get_agg_function()
        self._state = state

    def accumulator(self) -> Any:
        return self._state.value()

    def get(self) -> Any:
        accumulator = self._state.value()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        accumulator = self._state.value()
        start = self._function.create_accumulator() if accumulator is None else accumulator
        self._state.update(self._function.add(value, start))

    def merge(self, other: Any) -> None:
        accumulator = self._state.value()
        if other is not None:
            self._state.update(other if accumulator is None else self._function.merge(accumulator, other))

    def clear(self) -> None:
        self._state.clear()


class WindowContext(Clocks, ProcessWindowFunction.Context):
    """The context of window functions."""

    def __init__(
        self, context: OperatorContext, watermark: Callable[[], int], results: Results, *, is_merging: bool
    ) -> None:
        super().__init__(context, watermark)
        assert context.keyed_state is not None
        self._results = results
        self._key_context = context.keyed_state.key_context
        self._global_state = RuntimeContextImpl(context)
        self._is_merging = is_merging
        self.current: Any = None
        self.namespace: Any = None

    def window(self) -> Any:
        return self.current

    def get_current_key(self) -> Any:
        return self._key_context.as_restored(self._key_context.key)

    def window_state(self) -> KeyedStateStore:
        if self._is_merging:
            raise InvalidJob(
                "windows that merge have no window state, because their states could not be merged",
                remedy="use global_state(), or a window that does not merge",
            )
        return WindowStateStore(self._global_state, self._key_context, self.namespace)

    def global_state(self) -> KeyedStateStore:
        return self._global_state

    def output(self, output_tag: OutputTag, value: Any) -> None:
        self._results.side(output_tag, value, self.current.max_timestamp())


class WindowStateStore(KeyedStateStore):
    """State of one key and window (`window_state()`)."""

    def __init__(self, store: KeyedStateStore, key_context: KeyContext, namespace: Any) -> None:
        self._store = store
        self._key_context = key_context
        self._namespace = namespace

    def get_state(self, state_descriptor: Any) -> Any:
        return self._scoped(self._store.get_state(state_descriptor))

    def get_list_state(self, state_descriptor: Any) -> Any:
        return self._scoped(self._store.get_list_state(state_descriptor))

    def get_map_state(self, state_descriptor: Any) -> Any:
        return self._scoped(self._store.get_map_state(state_descriptor))

    def get_reducing_state(self, state_descriptor: Any) -> Any:
        return self._scoped(self._store.get_reducing_state(state_descriptor))

    def get_aggregating_state(self, state_descriptor: Any) -> Any:
        return self._scoped(self._store.get_aggregating_state(state_descriptor))

    def _scoped(self, state: Any) -> Any:
        return _scoped_class(type(state))(state, self._key_context, self._namespace)


_scoped_classes: dict[type, type] = {}
_SPECIAL = ("__iter__", "__len__", "__bool__", "__contains__", "__getitem__", "__setitem__", "__delitem__")


def _scoped_class(state_class: type) -> type:
    """Return a class with the methods of `state_class`, each of which runs in the namespace of its instance."""
    scoped = _scoped_classes.get(state_class)
    if scoped is None:
        names = [name for name in dir(state_class) if not name.startswith("_") or name in _SPECIAL]
        methods: dict[str, Any] = {name: _in_namespace(name) for name in names if callable(getattr(state_class, name))}
        methods["__init__"] = _init_scoped
        scoped = _scoped_classes[state_class] = type(f"Window{state_class.__name__}", (), methods)
    return scoped


def _init_scoped(self: Any, state: Any, key_context: KeyContext, namespace: Any) -> None:
    self._state, self._key_context, self._namespace = state, key_context, namespace


def _in_namespace(name: str) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **named: Any) -> Any:
        at = self._key_context
        before, at.namespace = at.namespace, self._namespace
        try:
            result = getattr(self._state, name)(*args, **named)
            return iter(list(result)) if isinstance(result, Iterator) else result
        finally:
            at.namespace = before

    call.__name__ = name
    return call
