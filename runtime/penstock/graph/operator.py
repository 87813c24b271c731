"""The operator interface, which every runtime operator implements. Through `functions.operator_context`, an operator uses its task.

The program records a description of each operator (`graph.operations`). Each subtask creates its own operator from the
description and drives it from one thread. The life of an operator:

    setup(context, output) -> after the restore: state handles already hold the restored values
    open()
      process_batch(batch, input_index) / process_watermark(timestamp) / process_idle(is_idle)
      take_finished()                    for operators with a capacity: called after the operator woke the task
      advance_processing_time(now)       at every epoch and between batches; fires processing-time timers that are due
      snapshot(checkpoint_id)            at the barrier, after the last record of the epoch; sync part only
      notify_checkpoint_complete(id) / notify_checkpoint_aborted(id)
    finish()                             when bounded input has ended, after the final watermark and before the last snapshot
    close()                              always, also after a failure

Outputs are pushed: `self.output.emit(batch)`, `self.output.emit_side(tag_id, batch)`,
`self.output.emit_watermark(timestamp)`, `self.output.emit_idle(is_idle)`. An operator must forward a watermark after
everything that it emits because of the watermark. The base class does that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock.records.batch import MIN_TIMESTAMP, Batch

if TYPE_CHECKING:
    from penstock.functions.operator_context import OperatorContext


class Output(Protocol):
    """The receiver of an operator's results: the next operators of the chain, the exchanges, or a test's list."""

    def emit(self, batch: Batch) -> None: ...

    def emit_side(self, tag_id: str, batch: Batch) -> None: ...

    def emit_watermark(self, timestamp: int) -> None: ...

    def emit_idle(self, is_idle: bool) -> None: ...


@dataclass
class OperatorSnapshot:
    """The result of the synchronous part of a snapshot. It has no keyed and operator state, because the task collects this state itself.

    `committables`: pending commits of a sink, as JSON values. The JobManager executes these commits when the checkpoint is complete.
    """

    committables: list[Any] = field(default_factory=list)


class Operator:
    """Base of all runtime operators with one input. The module's docstring describes the life cycle."""

    holds_records = False
    """Whether the operator holds records that may still produce results, even if no further input arrives."""
    capacity: int | None = None
    """Maximum number of records in progress, for operators that continue work after `process_batch`; None for others.

    Such operators call `context.wake` when some records are done.
    """
    is_keyed = False
    """Whether the operator needs keyed state. If so, its input comes through a key-group exchange, and `key_selectors` are set."""
    key_selectors: tuple[Callable[[Any], Any] | None, ...] = ()
    """One key selector per input, None for an input without a key (the broadcast side)."""
    key_type: Any = None
    """TypeInformation of keys that are objects of a class (dataclass, NamedTuple, Enum); None for builtin keys.

    The state backend needs the type to create the keys again from their stored form.
    """
    context: OperatorContext
    output: Output

    def setup(self, context: OperatorContext, output: Output) -> None:
        self.context = context
        self.output = output

    def declare_states(self, context: OperatorContext) -> None:
        """Declare the operator's states whose types come from the program, in a context that is discarded afterwards.

        Penstock calls this method when it builds the job, so that it refuses types without an encoding before any part of the job runs.
        """

    def open(self) -> None:
        """Prepare for the first record. Called once."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Process records of one input, in order. The method is not abstract, because a source's operator has no input."""
        raise NotImplementedError(f"{type(self).__qualname__} takes no input")

    @property
    def is_full(self) -> bool:
        """Return whether the operator has its maximum number of records in progress. The task then sends no more records to it."""
        return False

    def take_finished(self) -> None:
        """Emit the results of records that were in progress."""

    def process_watermark(self, timestamp: int) -> None:
        """Advance event time to `timestamp` (ms): fire due timers, then forward the watermark."""
        timers = self.context.timers
        if timers is not None:
            timers.advance_watermark(timestamp)
        self.output.emit_watermark(timestamp)

    def begin_watermark(self, timestamp: int) -> Iterable[None]:
        """Do the work of `process_watermark` in parts, and yield between them, so that the caller can do other work.

        A barrier may arrive between two parts, but no record arrives before the last part.
        """
        self.process_watermark(timestamp)
        return ()

    def rewind(self) -> None:
        """Reset the event-time clock in batch mode, because the next key begins."""
        timers = self.context.timers
        if timers is not None:
            timers.current_watermark = MIN_TIMESTAMP

    def emit_periodic_watermark(self) -> None:
        """Emit the next periodic watermark immediately (for tests on a manual clock)."""

    def process_idle(self, is_idle: bool) -> None:
        self.output.emit_idle(is_idle)

    def advance_processing_time(self, now: int) -> None:
        timers = self.context.timers
        if timers is not None:
            timers.advance_processing_time(now)

    def next_processing_time(self) -> int | None:
        """Return the time of the earliest processing-time timer (ms), so that the JobMaster runs an epoch for it."""
        timers = self.context.timers
        return None if timers is None else timers.next_processing_time()

    def next_wake(self) -> int | None:
        """Return the time (ms) at which `advance_processing_time` next has work; None means that it has no work before the next input."""
        return self.next_processing_time()

    def current_watermark(self) -> int:
        timers = self.context.timers
        return MIN_TIMESTAMP if timers is None else timers.current_watermark

    def write_state(self) -> None:
        """Write data that is held outside of keyed state to keyed state, for readers of the state. `snapshot` does this itself."""

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return OperatorSnapshot()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None: ...

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None: ...

    def notify_committed(self, checkpoint_id: int) -> None:
        """Handle the end of this checkpoint's commits: the pre-committed output is now committed."""

    def finish(self) -> None: ...

    def close(self) -> None: ...
