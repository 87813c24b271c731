"""The operator seam: what every runtime operator is. What it may ask of its task: `functions.operator_context`.

What an operator is to do is recorded by the program (`graph.operations`); each subtask makes an operator of its own from
that, and drives it from one thread. The life of an operator:

    setup(context, output) -> restore happened before this: state handles already hold the restored values
    open()
      process_batch(batch, input_index) / process_watermark(timestamp) / process_idle(is_idle)
      take_finished()                    of operators with a capacity: the task was woken
      advance_processing_time(now)       at every epoch and between batches; fires processing-time timers that are due
      snapshot(checkpoint_id)            at the barrier, after the last record of the epoch; sync part only
      notify_checkpoint_complete(id) / notify_checkpoint_aborted(id)
    finish()                             bounded input has ended: after the final watermark, before the last snapshot
    close()                              always, also after a failure

Outputs are pushed: `self.output.emit(batch)`, `self.output.emit_side(tag_id, batch)`,
`self.output.emit_watermark(timestamp)`, `self.output.emit_idle(is_idle)`. An operator must forward watermarks after
everything it emits because of them (T6): the base class does that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock.records.batch import MIN_TIMESTAMP, Batch

if TYPE_CHECKING:
    from penstock.functions.operator_context import OperatorContext


class Output(Protocol):
    """Where an operator's results go: the next operators of the chain, the exchanges, or a test's list."""

    def emit(self, batch: Batch) -> None: ...

    def emit_side(self, tag_id: str, batch: Batch) -> None: ...

    def emit_watermark(self, timestamp: int) -> None: ...

    def emit_idle(self, is_idle: bool) -> None: ...


@dataclass
class OperatorSnapshot:
    """What the synchronous part of a snapshot gives beyond keyed and operator state, which the task collects itself.

    `committables`: JSON-able descriptions of pending sink commits; the JobManager commits them when the checkpoint
    is complete (K7).
    """

    committables: list[Any] = field(default_factory=list)


class Operator:
    """Base of all runtime operators with one input. See the module's head for the life cycle."""

    holds_records = False
    """True while it has taken records that may yet have results, which nothing that comes must bring about."""
    capacity: int | None = None
    """Of operators that go on working on records after `process_batch`: how many at a time. They call `context.wake` when some
    are done."""
    is_keyed = False
    """True: needs keyed state; its input comes over a key-group exchange; `key_selectors` are set."""
    key_selectors: tuple[Callable[[Any], Any] | None, ...] = ()
    """One per input, None for an input without a key (the broadcast side)."""
    key_type: Any = None
    """TypeInformation of the keys where they are objects of a class (dataclass, NamedTuple, Enum), which the state
    backend must make again from what it stored; None for builtin keys."""
    context: OperatorContext
    output: Output

    def setup(self, context: OperatorContext, output: Output) -> None:
        self.context = context
        self.output = output

    def declare_states(self, context: OperatorContext) -> None:
        """Ask for the operator's own states whose types come from the program, in a context that nobody uses afterwards.

        Called as the job is built, so that types without encoding are refused before anything of it runs.
        """

    def open(self) -> None:
        """Called once before the first record."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Work on records of one input, in order. Not abstract: a source's operator has no input that could bring any."""
        raise NotImplementedError(f"{type(self).__qualname__} takes no input")

    @property
    def is_full(self) -> bool:
        """It has as many records at work as it can: its task brings no more for now."""
        return False

    def take_finished(self) -> None:
        """Emit what has come of records that were still at work."""

    def process_watermark(self, timestamp: int) -> None:
        """The task's event-time clock has advanced to `timestamp` (ms). Fire due timers, then forward."""
        timers = self.context.timers
        if timers is not None:
            timers.advance_watermark(timestamp)
        self.output.emit_watermark(timestamp)

    def begin_watermark(self, timestamp: int) -> Iterable[None]:
        """`process_watermark`, for who has other things to do meanwhile: what is left of it, in parts. A barrier may come between
        two of them; no record comes before the last."""
        self.process_watermark(timestamp)
        return ()

    def rewind(self) -> None:
        """In batch mode: the next key begins, and with it the event-time clock."""
        timers = self.context.timers
        if timers is not None:
            timers.current_watermark = MIN_TIMESTAMP

    def process_idle(self, is_idle: bool) -> None:
        self.output.emit_idle(is_idle)

    def advance_processing_time(self, now: int) -> None:
        timers = self.context.timers
        if timers is not None:
            timers.advance_processing_time(now)

    def next_processing_time(self) -> int | None:
        """The earliest processing-time timer (ms), so that the JobMaster runs an epoch for it."""
        timers = self.context.timers
        return None if timers is None else timers.next_processing_time()

    def next_wake(self) -> int | None:
        """When (ms) `advance_processing_time` next has something to do; None: not without input."""
        return self.next_processing_time()

    def current_watermark(self) -> int:
        timers = self.context.timers
        return MIN_TIMESTAMP if timers is None else timers.current_watermark

    def write_state(self) -> None:
        """Write what is held beside keyed state into it. For who looks at the state; `snapshot` does it by itself."""

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return OperatorSnapshot()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None: ...

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None: ...

    def notify_committed(self, checkpoint_id: int) -> None:
        """What sinks pre-committed for this checkpoint has been committed."""

    def finish(self) -> None: ...

    def close(self) -> None: ...
