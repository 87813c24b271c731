"""The runtime context of one function in one subtask: what `Function.open` gets."""

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

if TYPE_CHECKING:
    from penstock.functions.operator_context import MetricSink, OperatorContext
    from penstock.state.backend import OperatorStateBackend
    from penstock.state.descriptors import AggregatingState, ListState, MapState, ReducingState, ValueState


class RuntimeContextImpl(RuntimeContext):
    """The runtime context over the operator's: state comes from its backends, the rest from its fields."""

    def __init__(self, operator_context: OperatorContext) -> None:
        self._context = operator_context

    def get_task_name(self) -> str:
        return self._context.name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._context.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._context.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._context.subtask

    def get_attempt_number(self) -> int:
        return max(0, self._context.attempt - 1)  # attempts are leader epochs, which begin with 1

    def get_task_name_with_subtasks(self) -> str:
        context = self._context
        return f"{context.name} ({context.subtask + 1}/{context.parallelism})#{self.get_attempt_number()}"

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return self._context.job_parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricSink:
        if self._context.metrics is None:
            # Nobody reports: an operator run by itself, in a test. The metrics work all the same.
            from penstock.metrics.task import TaskMetrics

            self._context.metrics = TaskMetrics().operator_group(self._context.uid, self._context.name)
        return self._context.metrics

    def add_accumulator(self, name: str, accumulator: Accumulator) -> None:
        known = self._context.accumulators
        if not isinstance(accumulator, Accumulator) or not is_known(accumulator):
            raise self._refusal(
                f"{accumulator!r} is no accumulator of penstock.functions.accumulators",
                "use IntCounter, LongCounter, DoubleCounter, AverageAccumulator, ListAccumulator or Histogram",
            )
        if known.get(name, accumulator) is not accumulator:
            raise self._refusal(f"there is an accumulator {name!r} already", "give each a name of its own")
        known[name] = accumulator

    def get_accumulator(self, name: str) -> Accumulator:
        if name not in self._context.accumulators:
            have = ", ".join(map(repr, self._context.accumulators)) or "none"
            raise self._refusal(f"there is no accumulator {name!r}; there is {have}", "add_accumulator in open()")
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
        return self._context.operator_state

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
                remedy="use the getter that belongs to the descriptor",
                operator=context.name,
                location=context.user_location,
            )
        if context.keyed_state is None:
            raise KeyedStateNotAvailable(
                f"state {descriptor.name!r} belongs to a key, and the stream has none",
                remedy="put key_by(...) directly before the operator",
                operator=context.name,
                location=context.user_location,
            )
        return context.keyed_state.get_state(descriptor)


def open_function(function: object, context: OperatorContext) -> None:
    """Calls `open` of a function object with its runtime context; a plain callable has nothing to open.

    Raises:
        UserFunctionError: `open` raised; names the function, the operator and the user's line.
    """
    user_function = function_within(function)
    for attribute in state_attributes(user_function):
        attribute.open(user_function, RuntimeContextImpl(context))
    if not has_life_cycle(function):
        return
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
    """Calls `close` of a function object; a plain callable has nothing to close."""
    if has_life_cycle(function):
        function.close()  # type: ignore[attr-defined]
