"""Sources and sinks written as functions: `SourceFunction`, and `SinkFunction` or any callable.

A source function's `run(ctx)` runs in a separate thread. `ctx.collect` blocks while the reader does not keep up. A function with
`snapshot_state() -> state` and `initialize_state(state)` is resettable. It updates its state and emits under the lock:

    def run(self, ctx):
        while self.running:
            with ctx.get_checkpoint_lock():
                self.count += 1
                ctx.collect(self.count)

The state must be encodable as JSON. At the first start it is None. The state becomes the position of the function's split. At each
read, the reader takes the lock, empties the queue and calls `snapshot_state`. So the state belongs exactly to the records that were
read. A function without state restarts from its beginning after a failure.

A `CheckpointedFunction` or a `ListCheckpointed` is resettable, too. Its list states become the position of its split. The
reader takes a snapshot of these list states with each read, with the checkpoint id 0. A parallel function has as many instances as its
operator had subtasks at the first start. A rescale moves each instance with its state, so no state is divided or lost.
"""

from __future__ import annotations

import copy
import inspect
import threading
import time
from dataclasses import replace
from operator import length_hint
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob, UserFunctionError
from penstock.common.program.user_frames import user_line
from penstock.connectors.core.sink import Sink, SinkWriter, WriterContext
from penstock.connectors.core.source import (
    NotingSplitReader,
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.connectors.core.source_context import Mark, QueueContext, Taken
from penstock.functions.record_functions import ParallelSourceFunction, SinkFunction
from penstock.functions.runtime_context import close_function, open_function
from penstock.functions.state.checkpointed import CheckpointedFunction, FunctionCheckpoints, ListCheckpointed
from penstock.records.batch import MIN_TIMESTAMP, RowBatch
from penstock.state.operator_state import OperatorStateStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.functions.operator_context import OperatorContext

NO_CHECKPOINT = 0
_PATIENCE = 0.005
"""Seconds that a read waits for the first record before it returns None."""


class FunctionSource(Source):
    """A source that runs a `SourceFunction`, or any object with `run(ctx)`.

    Args:
        instances: the number of copies that run. The default is one per subtask for a `ParallelSourceFunction`, and 1
            for other functions.
        bounded: whether `run` returns by itself. The job can only end if `run` returns.
    """

    def __init__(
        self, function: Any, *, instances: int | None = None, bounded: bool = False, type_info: Any = None
    ) -> None:
        if not callable(getattr(function, "run", None)):
            raise InvalidJob(
                f"{function!r} is not a source function: it has no run(ctx)", remedy="subclass SourceFunction"
            )
        if not is_checkpointed(function) and hasattr(function, "snapshot_state") != hasattr(
            function, "initialize_state"
        ):
            raise InvalidJob(
                f"{type(function).__name__} has only one of snapshot_state and initialize_state",
                remedy="a resettable source function needs both",
            )
        self.function = function
        self.instances = instances or (None if isinstance(function, ParallelSourceFunction) else 1)
        self.bounded = bounded
        self.type_info = type_info

    def create_enumerator(self) -> SplitEnumerator:
        return InstanceEnumerator(self.instances)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return FunctionReader(self.function, context)

    def produced_type(self) -> Any:
        return self.type_info


class InstanceEnumerator(SplitEnumerator):
    """An enumerator with one split per copy of the function."""

    def __init__(self, instances: int | None) -> None:
        self._instances = instances

    def discover(self) -> list[Split]:
        count = self._instances or max(1, self.parallelism)
        return [Split(f"instance-{n}", {"instance": n, "instances": count}) for n in range(count)]


class FunctionReader(SourceReader):
    def __init__(self, function: Any, context: ReaderContext) -> None:
        self._function = function
        self._context = context
        self._used = False

    def open_split(self, split: Split, position: Any) -> SplitReader:
        function = self._function
        if self._used:
            function = copy.deepcopy(function)
        self._used = True
        operator = self._context.operator
        states = None
        if operator is not None:
            if is_checkpointed(function):
                with operator.named_in_errors():
                    states = OwnStates(function, operator, position)
            open_function(function, operator)
        return FunctionSplitReader(function, QueueContext(**split.properties), position, states)


def is_checkpointed(function: Any) -> bool:
    """Return True if the function keeps its state through `CheckpointedFunction` or `ListCheckpointed`."""
    return isinstance(function, CheckpointedFunction | ListCheckpointed)


class OwnStates:
    """The operator state of one copy of a source function. Each position contains all of this state."""

    def __init__(self, function: Any, operator: OperatorContext, position: Any) -> None:
        store = OperatorStateStore(operator.name)
        if position is not None:
            store.restore([position], subtask=0, parallelism=1)
        context = replace(operator, operator_state=store, is_restored=position is not None)
        self._checkpoints = FunctionCheckpoints(iter((function,)), context)
        self._checkpoints.initialize()
        self._store = store

    def initialize_state(self, position: Any) -> None:
        """Do nothing: the constructor has already initialized the state."""

    def snapshot_state(self) -> dict[str, Any]:
        self._checkpoints.snapshot(NO_CHECKPOINT)
        return self._store.snapshot()


class FunctionSplitReader(NotingSplitReader):
    """A reader of the records that one copy of the function emits.

    Args:
        states: the function's operator state; None if the function has its own `snapshot_state`, or no state.
    """

    def __init__(self, function: Any, context: QueueContext, position: Any, states: OwnStates | None = None) -> None:
        super().__init__(position)
        self._function = function
        self._context = context
        self._states: Any = function if states is None else states
        self._resettable = states is not None or (not is_checkpointed(function) and hasattr(function, "snapshot_state"))
        if self._resettable:
            self._states.initialize_state(position)
        self._error: BaseException | None = None
        self._marks: list[Mark] = []
        self._thread = threading.Thread(target=self._run, name=f"source-function-{context.instance}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._function.run(self._context)
        except BaseException as error:  # `read` raises the error, in the task's thread
            self._error = error
        finally:
            self._context.wake()

    def read(self, bounds: ReadBounds) -> RowBatch | None:
        was_running = self._thread.is_alive()
        taken = self._context.take(_PATIENCE if was_running else 0.0)
        if self._resettable:
            self._snapshot(taken)
        values, timestamps = taken.values, taken.timestamps
        if taken.marks:
            self._watermark = taken.marks[-1][1]
        self._marks = taken.marks if values else []
        is_dry = not values and not taken.marks
        self._idle = taken.idle and is_dry  # idle only after the job has read all emitted records
        if is_dry and not was_running:
            if self._error is not None:
                error = self._error
                raise UserFunctionError(
                    f"run of {type(self._function).__name__} raised {type(error).__name__}: {error}{user_line(error)}",
                    remedy="correct the source function",
                ) from error
            self._finished = True
        if not values:
            return None
        with_time = all(timestamp is not None for timestamp in timestamps)
        return RowBatch(values, [t for t in timestamps if t is not None] if with_time else None)

    def _snapshot(self, taken: Taken) -> None:
        """Take the lock, add all waiting records to `taken`, and update the position. So the position belongs exactly to these records."""
        lock = self._context.lock
        lock.request()
        while not lock.try_acquire(timeout=0.001):
            taken.add(self._context.take())
        try:
            taken.add(self._context.take())
            self._position = self._states.snapshot_state()
        finally:
            lock.release_request()

    def take_watermarks(self) -> list[Mark]:
        marks, self._marks = self._marks, []
        return marks

    def close(self) -> None:
        cancel = getattr(self._function, "cancel", None)
        if cancel is not None:
            cancel()
        self._context.close()
        self._thread.join(timeout=5.0)
        close_function(self._function)


class FunctionSink(Sink):
    """A sink that calls a function with every record. It writes at least once: a failure replays the records since the last checkpoint.

    Args:
        function: a `SinkFunction`, an object with `invoke(value)` or `invoke(value, context)`, or a callable with these
            parameters. The sink calls `open` and `close`. It calls `flush()`, if it exists, before each checkpoint.
    """

    def __init__(self, function: Any) -> None:
        if not callable(function) and not callable(getattr(function, "invoke", None)):
            raise InvalidJob(
                f"{function!r} is not a sink function",
                remedy="pass a callable, or an object with invoke(value, context)",
            )
        self.function = function

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return FunctionWriter(self.function, context)


class FunctionWriter(SinkWriter):
    def __init__(self, function: Any, context: WriterContext) -> None:
        self._function = function
        self._invoke: Callable[..., Any] = getattr(function, "invoke", function)
        self._with_context = _takes_context(self._invoke)
        self._record = RecordContext(clock_of(context.operator))
        self._checkpoints: FunctionCheckpoints | None = None
        if context.operator is not None:
            self._checkpoints = FunctionCheckpoints(iter((function,)), context.operator)
            self._checkpoints.initialize()
            open_function(function, context.operator)

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        iterator = iter(values)
        try:
            if self._with_context:
                self._write_with_context(iterator, timestamps, watermark)
            else:
                invoke = self._invoke
                for value in iterator:
                    invoke(value)
        except Exception as error:
            failed = values[len(values) - length_hint(iterator) - 1]
            raise UserFunctionError(
                f"the sink function raised {type(error).__name__} for {failed!r}: {error}{user_line(error)}",
                remedy="correct the function, or make its target reachable",
            ) from error

    def _write_with_context(self, values: Any, timestamps: list[int] | None, watermark: int) -> None:
        record = self._record
        record.watermark = watermark
        for index, value in enumerate(values):
            record.time = None if timestamps is None else timestamps[index]
            self._invoke(value, record)

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        flush = getattr(self._function, "flush", None)
        if callable(flush):
            flush()
        if self._checkpoints is not None:
            self._checkpoints.snapshot(checkpoint_id)
        return []

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if self._checkpoints is not None:
            self._checkpoints.completed(checkpoint_id)

    def close(self) -> None:
        close_function(self._function)


def clock_of(operator: OperatorContext | None) -> Callable[[], int]:
    """Return the clock for processing time in ms: the task's clock, or the machine's clock if there is no task."""
    return operator.clock.now_ms if operator is not None else lambda: time.time_ns() // 1_000_000


class RecordContext(SinkFunction.Context):
    """The `context` of `invoke`, with the times of the current record in ms. The sink reuses the object, so it is valid only during the call."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.watermark = MIN_TIMESTAMP
        self.time: int | None = None

    def current_processing_time(self) -> int:
        return self._now_ms()

    def current_watermark(self) -> int:
        return self.watermark

    def timestamp(self) -> int | None:
        return self.time


def _takes_context(invoke: Callable[..., Any]) -> bool:
    """Return True if a function has a second positional parameter without a default."""
    try:
        parameters = list(inspect.signature(invoke).parameters.values())
    except (TypeError, ValueError):
        return False
    positional = [
        p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    return len(positional) > 1
