"""Functions that take part in checkpoints: they store state of their subtask, and learn the outcome of checkpoints.

    class Buffer(FlatMapFunction, CheckpointedFunction):
        def initialize_state(self, context):
            self.items = context.get_operator_state_store().get_list_state("items", str)

        def snapshot_state(self, context):
            self.items[:] = self.pending

The operator calls `initialize_state` once, before `open`. It calls `snapshot_state` at every barrier, when it holds no record. A
notification may be lost if the task fails or the job ends. The next notification then also covers the earlier checkpoints.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.common.errors import PenstockError, UserFunctionError
from penstock.common.program.user_frames import user_line
from penstock.functions.function import function_within
from penstock.functions.runtime_context import RuntimeContextImpl, leave_key

if TYPE_CHECKING:
    from penstock.functions.operator_context import OperatorContext

_LIST = "list-checkpointed-function"


@dataclass(frozen=True)
class FunctionSnapshotContext:
    """The checkpoint that the function takes part in."""

    checkpoint_id: int
    checkpoint_timestamp: int
    """Time of the checkpoint in ms since the epoch."""

    def get_checkpoint_id(self) -> int:
        return self.checkpoint_id

    def get_checkpoint_timestamp(self) -> int:
        return self.checkpoint_timestamp


class FunctionInitializationContext(RuntimeContextImpl):
    """A context with `is_restored()`, the operator state of the subtask and, on a keyed stream, keyed state."""

    def get_keyed_state_store(self) -> FunctionInitializationContext:
        """Return this context, which has `get_state`, `get_list_state`, …"""
        return self


class CheckpointedFunction(ABC):
    """A function that keeps state of its subtask.

    The state is operator list state, union list state or keyed state. A rescale distributes operator list state evenly. Every subtask
    gets all of a union list state.
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext, /) -> None:
        """Get the states from the context, and read their contents after a restore."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext, /) -> None:
        """Write the values for the checkpoint into the states."""


class ListCheckpointed(ABC):
    """A function whose state is a list of values, which a rescale distributes evenly to the subtasks."""

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int, timestamp: int, /) -> list[Any]:
        """Return the state. A rescale can only distribute a list with several items."""

    @abstractmethod
    def restore_state(self, state: list[Any], /) -> None:
        """Take this subtask's share of the state after a restore, before `open`. The share may be empty."""


class CheckpointListener:
    """A function that learns the outcome of checkpoints."""

    def notify_checkpoint_complete(self, checkpoint_id: int, /) -> None:
        """Handle a complete checkpoint, which all tasks have stored. Earlier checkpoints are no longer needed."""

    def notify_checkpoint_aborted(self, checkpoint_id: int, /) -> None:
        """Handle an aborted checkpoint. It will never complete, but a later one may."""


class FunctionCheckpoints:
    """The checkpoint calls to the user's functions of one operator.

    Raises, from every method:
        UserFunctionError: a function raised. The error names the function, the operator and the line of user code.
    """

    def __init__(self, functions: Iterator[Any], context: OperatorContext) -> None:
        self._functions = [function_within(function) for function in functions]
        self._context = context

    def initialize(self) -> None:
        context = self._context
        for function in self._functions:
            if isinstance(function, CheckpointedFunction):
                self._call(function.initialize_state, FunctionInitializationContext(context))
            elif isinstance(function, ListCheckpointed):
                state = context.operator_state.get_list_state(_LIST)
                if context.is_restored:
                    self._call(function.restore_state, list(state))

    def snapshot(self, checkpoint_id: int) -> None:
        now = self._context.clock.now_ms()
        for function in self._functions:
            if isinstance(function, CheckpointedFunction):
                self._call(function.snapshot_state, FunctionSnapshotContext(checkpoint_id, now))
            elif isinstance(function, ListCheckpointed):
                items = self._call(function.snapshot_state, checkpoint_id, now)
                self._context.operator_state.get_list_state(_LIST)[:] = items or []

    def completed(self, checkpoint_id: int) -> None:
        for function in self._functions:
            if isinstance(function, CheckpointListener):
                self._call(function.notify_checkpoint_complete, checkpoint_id)

    def aborted(self, checkpoint_id: int) -> None:
        for function in self._functions:
            if isinstance(function, CheckpointListener):
                self._call(function.notify_checkpoint_aborted, checkpoint_id)

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        leave_key(self._context, method.__name__)
        try:
            return method(*arguments)
        except PenstockError:
            raise
        except Exception as error:
            raise UserFunctionError(
                f"{method.__qualname__} raised {type(error).__name__}: {error}{user_line(error)}",
                operator=self._context.name,
                location=self._context.user_location,
            ) from error
