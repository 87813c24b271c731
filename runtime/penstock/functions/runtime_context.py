"""The runtime context of one function in one subtask, which `Function.open` receives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob, KeyedStateNotAvailable, PenstockError, UserFunctionError
from penstock.common.program.user_frames import user_line
from penstock.functions.accumulators import Accumulator, is_known
from penstock.functions.function import RuntimeContext, function_within, has_life_cycle
from penstock.functions.state.state_attributes import state_attributes
from penstock.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.key_context import NoKey
from penstock.state.owners import FUNCTION, OPERATOR

if TYPE_CHECKING:
    from penstock.functions.operator_context import MetricSink, OperatorContext
    from penstock.state.backend import OperatorStateBackend
    from penstock.state.descriptors import AggregatingState, ListState, MapState, ReducingState, ValueState


class RuntimeContextImpl(RuntimeContext):
    """The runtime context of a function. State comes from the backends of the operator's context, and all other values from the fields of
    that context.

    Args:
        owner: owner of the keyed state: `FUNCTION`, or `OPERATOR` for functions of the library that wrap a user's function.
    """

    def __init__(self, operator_context: OperatorContext, owner: str = FUNCTION) -> None:
        self._context = operator_context
        self._owner = owner

    def get_task_name(self) -> str:
        return self._context.name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._context.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._context.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._context.subtask

    def get_attempt_number(self) -> int:
        return max(0, self._context.attempt - 1)  # attempts are leader epochs, which start at 1

    def get_task_name_with_subtasks(self) -> str:
        context = self._context
        return f"{context.name} ({context.subtask + 1}/{context.parallelism})#{self.get_attempt_number()}"

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return self._context.job_parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricSink:
        if self._context.metrics is None:
            # No task reports the metrics of an operator that a test runs alone, but the metrics must still work.
            from penstock.metrics.task import TaskMetrics

            self._context.metrics = TaskMetrics().operator_group(self._context.uid, self._context.name)
        return self._context.metrics

    def add_accumulator(self, name: str, accumulator: Accumulator) -> None:
        known = self._context.accumulators
        if not isinstance(accumulator, Accumulator) or not is_known(accumulator):
            raise self._refusal(
                f"{accumulator!r} is not an accumulator of penstock.functions.accumulators",
                "use IntCounter, LongCounter, DoubleCounter, AverageAccumulator, ListAccumulator or Histogram",
            )
        if known.get(name, accumulator) is not accumulator:
            raise self._refusal(f"an accumulator {name!r} already exists", "use another name")
        known[name] = accumulator

    def get_accumulator(self, name: str) -> Accumulator:
        if name not in self._context.accumulators:
            have = ", ".join(map(repr, self._context.accumulators)) or "none"
            raise self._refusal(
                f"accumulator {name!r} does not exist; existing accumulators: {have}", "add_accumulator in open()"
            )
        return self._context.accumulators[name]

    def _refusal(self, message: str, remedy: str) -> InvalidJob:
        return InvalidJob(message, remedy=remedy, operator=self._context.name, location=self._context.user_location)

    def get_job_id(self) -> str:
        return self._context.job_id

    def get_job_name(self) -> str:
        return self._context.job_name

    def is_restored(self) -> bool:
        return self._context.is_restored

    def get_operator_state_store(self) -> OperatorStateBackend:
        return self._context.operator_state.for_functions()

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        state: ValueState[Any] = self._keyed(state_descriptor, ValueStateDescriptor, "get_state")
        return state

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        state: ListState[Any] = self._keyed(state_descriptor, ListStateDescriptor, "get_list_state")
        return state

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        state: MapState[Any, Any] = self._keyed(state_descriptor, MapStateDescriptor, "get_map_state")
        return state

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        state: ReducingState[Any] = self._keyed(state_descriptor, ReducingStateDescriptor, "get_reducing_state")
        return state

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        state: AggregatingState[Any, Any] = self._keyed(
            state_descriptor, AggregatingStateDescriptor, "get_aggregating_state"
        )
        return state

    def _keyed(self, descriptor: StateDescriptor, expected: type[StateDescriptor], method: str) -> Any:
        context = self._context
        if not isinstance(descriptor, expected):
            raise InvalidJob(
                f"{method} takes a {expected.__name__}, got {descriptor!r}",
                remedy="use the getter for this kind of descriptor",
                operator=context.name,
                location=context.user_location,
            )
        if context.keyed_state is None:
            raise KeyedStateNotAvailable(
                f"state {descriptor.name!r} is keyed state, but the stream is not keyed",
                remedy="put key_by(...) directly before the operator",
                operator=context.name,
                location=context.user_location,
            )
        return context.keyed_state.get_state(descriptor, self._owner)


def of_library(context: RuntimeContext) -> RuntimeContext:
    """Return the context for the states of a library function that wraps a user's function. The user's function gets `context` itself."""
    return RuntimeContextImpl(context._context, OPERATOR) if isinstance(context, RuntimeContextImpl) else context


def leave_key(context: OperatorContext, method: str) -> None:
    """Clear the current key, because the operator calls a method of the user's function without a record or a timer."""
    if context.keyed_state is not None:
        context.keyed_state.key_context.key = NoKey.in_call(method)


def open_function(function: object, context: OperatorContext) -> None:
    """Call `open` of a function object with its runtime context. A plain callable has no `open`.

    Raises:
        UserFunctionError: `open` raised. The error names the function, the operator and the line of user code.
    """
    user_function = function_within(function)
    for attribute in state_attributes(user_function):
        attribute.open(user_function, RuntimeContextImpl(context))
    if not has_life_cycle(function):
        return
    leave_key(context, "open")
    try:
        function.open(RuntimeContextImpl(context))  # type: ignore[attr-defined]
    except PenstockError:
        raise
    except Exception as error:
        raise UserFunctionError(
            f"{type(function).__qualname__}.open raised {type(error).__name__}: {error}{user_line(error)}",
            operator=context.name,
            location=context.user_location,
        ) from error


def close_function(function: object) -> None:
    """Call `close` of a function object. A plain callable has no `close`."""
    if has_life_cycle(function):
        function.close()  # type: ignore[attr-defined]


class FunctionWrapper:
    """The part of a wrapper that opens and closes the user's function. Put it before the function class among the bases."""

    def __init__(self, function: Any) -> None:
        self._function = function

    @property
    def wrapped_function(self) -> Any:
        """Return the user's function."""
        return self._function

    def open(self, runtime_context: RuntimeContext) -> None:
        if has_life_cycle(self._function):
            self._function.open(runtime_context)

    def close(self) -> None:
        close_function(self._function)
