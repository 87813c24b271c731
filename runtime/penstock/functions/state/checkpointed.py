"""Functions that take part in checkpoints: with state of their own subtask, and by hearing what became of them.

    class Buffer(FlatMapFunction, CheckpointedFunction):
        def initialize_state(self, context):
            self.items = context.get_operator_state_store().get_list_state("items", str)

        def snapshot_state(self, context):
            self.items[:] = self.pending

`initialize_state` is called once, before `open`; `snapshot_state` at every barrier, when no record is in the operator. A
notification may be missed (the task had failed, or the job ended): a later one stands for those before it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.common.errors import PenstockError, UserFunctionError
from penstock.common.program.user_frames import user_line
from penstock.functions.function import function_within
from penstock.functions.runtime_context import RuntimeContextImpl

if TYPE_CHECKING:
    from penstock.functions.operator_context import OperatorContext

_LIST = "list-checkpointed-function"


@dataclass(frozen=True)
class FunctionSnapshotContext:
    """Of the checkpoint that is being taken."""

    checkpoint_id: int
    checkpoint_timestamp: int
    """ms since the epoch."""

    def get_checkpoint_id(self) -> int:
        return self.checkpoint_id

    def get_checkpoint_timestamp(self) -> int:
        return self.checkpoint_timestamp


class FunctionInitializationContext(RuntimeContextImpl):
    """Gives `is_restored()`, the operator state of the subtask and, on a keyed stream, keyed state."""

    def get_keyed_state_store(self) -> FunctionInitializationContext:
        """This context: it has `get_state`, `get_list_state`, …"""
        return self


class CheckpointedFunction(ABC):
    """A function that keeps state of its subtask: operator list state, which a rescale spreads evenly, union list state, of
    which every subtask gets everything, or keyed state."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Ask for states, and take what they hold after a restore."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Put into the states what the checkpoint is to hold."""


class ListCheckpointed(ABC):
    """A function whose state is a list of values, which a rescale spreads evenly over the subtasks."""

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[Any]:
        """The state; in several parts, if it is to be spread."""

    @abstractmethod
    def restore_state(self, state: list[Any]) -> None:
        """After a restore, before `open`: this subtask's share, which may be empty."""


class CheckpointListener:
    """A function that hears what became of checkpoints."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """All tasks have stored it, and so those before it need not complete any more."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """It will not complete; a later one may."""


class FunctionCheckpoints:
    """The user's functions of one operator, as checkpoints see them.

    Raises, from every method:
        UserFunctionError: a function raised; names it, the operator and the user's line.
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
