"""`Function`, the base of all function objects, and the `RuntimeContext` that `Function.open` receives.

A user function is a plain callable, or a function object if it has to open, close or remember something. Operators handle callables and
function objects in the same way: they call `open_function` before the first record and `close_function` after the last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, cast

from penstock.common.errors import InvalidJob

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.functions.accumulators import Accumulator
    from penstock.functions.operator_context import MetricSink
    from penstock.state.backend import OperatorStateBackend
    from penstock.state.descriptors import (
        AggregatingState,
        AggregatingStateDescriptor,
        ListState,
        ListStateDescriptor,
        MapState,
        MapStateDescriptor,
        ReducingState,
        ReducingStateDescriptor,
        ValueState,
        ValueStateDescriptor,
    )


class KeyedStateStore(ABC):
    """A factory of keyed state handles. A handle holds no data: it reads and writes the value of the current key."""

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]: ...

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]: ...

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]: ...

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]: ...

    @abstractmethod
    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]: ...


class RuntimeContext(KeyedStateStore):
    """The information that a function object receives about its subtask, with access to state and metrics."""

    @abstractmethod
    def get_task_name(self) -> str: ...

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int: ...

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the number of key groups, which is the highest parallelism that the operator can have."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """Return the index of the subtask, starting at 0."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """Return the attempt number. It starts at 0 and rises by at least 1 at each failover, rescale or restart of the JobManager."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """Return the task name, for example `count (3/4)#0`: the third of four subtasks, first attempt."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return a global job parameter (`env.get_config().set_global_job_parameters`)."""

    @abstractmethod
    def get_metrics_group(self) -> MetricSink:
        """Return the group in which `open` registers counters, gauges, meters and distributions."""

    @abstractmethod
    def add_accumulator(self, name: str, accumulator: Accumulator) -> None:
        """Add a counter for `JobExecutionResult`. Call it in `open`. Subtasks that use the same name share one result."""

    @abstractmethod
    def get_accumulator(self, name: str) -> Accumulator:
        """Return an accumulator that was added."""

    @abstractmethod
    def get_job_id(self) -> str: ...

    @abstractmethod
    def get_job_name(self) -> str: ...

    @abstractmethod
    def is_restored(self) -> bool:
        """Return whether this attempt started from a checkpoint or savepoint."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateBackend:
        """Return the state of this subtask that belongs to no key.

        `get_list_state(name, type)` returns a live list: changes of the list are changes of the state. A rescale splits the list evenly
        among the subtasks. After a rescale, a list of `get_union_list_state` has the items of all subtasks.
        """


class Function(ABC):  # noqa: B024 - its subclasses have the abstract methods
    """The base of all function objects. Each subtask runs a copy, in one thread."""

    def open(self, runtime_context: RuntimeContext, /) -> None:  # noqa: B027 - optional
        """Prepare the function before the first record: register state and metrics, open connections."""

    def close(self) -> None:  # noqa: B027 - optional
        """Release resources after the last record. The operator calls it once, also after a failure."""


def has_life_cycle(function: object) -> bool:
    """Return whether the object is a `Function`, or has `open` and `close` like one (an adapter of another library)."""
    if isinstance(function, Function):
        return True
    return not isinstance(function, type) and all(callable(getattr(function, name, None)) for name in ("open", "close"))


def function_within(function: Any) -> Any:
    """Return the user's function inside the engine's wrappers. A wrapper is an object whose class has a `wrapped_function`."""
    while (inner := getattr(type(function), "wrapped_function", None)) is not None:
        function = inner.__get__(function)
    return function


def bind(function: Any, method: str) -> Callable[..., Any]:
    """Return the object's method of that name, or the callable itself.

    Raises:
        InvalidJob: the object has no such method and is not callable.
    """
    bound = getattr(function, method, None)
    if callable(bound):
        return cast("Callable[..., Any]", bound)
    if callable(function):
        return cast("Callable[..., Any]", function)
    raise InvalidJob(
        f"{function!r} is neither callable nor has it a method {method}",
        remedy=f"pass a function, or an object with {method}(…)",
    )


def name_of(function: Any) -> str:
    """Return a readable name of the function, for names of operators and error messages.

    >>> name_of(str.upper), name_of(lambda v: v)
    ('upper', '<lambda>')
    """
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__name__", None) or type(inner).__name__)
