"""Batch mode: time does not advance until the input ends. At the end all timers fire, with processing-time timers last,
as in Flink.

`BatchModeOperator` wraps an operator that processes its records as they arrive. `by_key.SortedKeyOperator` keeps the
records until it can process them key by key. Sources make no watermarks in batch mode, so both operators receive only
the final watermark, and no record is ever late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.graph.operator import Operator, OperatorSnapshot, Output
from penstock.records.batch import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.functions.operator_context import OperatorContext
    from penstock.records.batch import Batch


class WithoutWatermarks:
    """The output of the inner operator. The watermark is passed on after all results."""

    def __init__(self, output: Output) -> None:
        self.emit = output.emit
        self.emit_side = output.emit_side
        self.emit_idle = output.emit_idle

    def emit_watermark(self, timestamp: int) -> None:
        """Ignore the watermark at the end of a key."""


class BatchModeOperator(Operator):
    """An operator whose clocks do not advance before its input ends.

    Args:
        inner: the operator of streaming mode.
    """

    def __init__(self, inner: Operator) -> None:
        self.inner = inner
        self.is_keyed = inner.is_keyed
        self.key_selectors = inner.key_selectors
        self.has_ended = False

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self.inner.key_type = self.key_type
        self.inner.setup(context, WithoutWatermarks(output))

    def declare_states(self, context: OperatorContext) -> None:
        self.inner.declare_states(context)

    def open(self) -> None:
        self.inner.open()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self.inner.process_batch(batch, input_index)

    def process_watermark(self, timestamp: int) -> None:
        for _ in self.begin_watermark(timestamp):
            pass

    def begin_watermark(self, timestamp: int) -> Iterable[None]:
        if timestamp < MAX_TIMESTAMP or self.has_ended:
            return ()
        self.has_ended = True
        return self._end()

    def _end(self) -> Iterator[None]:
        yield from self.process_remaining()
        self.output.emit_watermark(MAX_TIMESTAMP)

    def process_remaining(self) -> Iterator[None]:
        """Do the remaining work at the end of the input, in parts.

        A snapshot between two parts contains the remaining work, because the final watermark arrives again after a
        restore.
        """
        self.end_of_time()
        yield

    def end_of_time(self) -> None:
        """Fire all timers. A processing-time timer that is registered during this call never fires, because time has
        ended."""
        self.inner.process_watermark(MAX_TIMESTAMP)
        timers = self.context.timers
        if timers is not None:
            with timers.no_more_processing_time():
                self.inner.advance_processing_time(MAX_TIMESTAMP)

    def advance_processing_time(self, now: int) -> None:
        """Ignore the time, because the timers fire at the end of the input."""

    def next_processing_time(self) -> int | None:
        return None

    def current_watermark(self) -> int:
        return MAX_TIMESTAMP if self.has_ended else MIN_TIMESTAMP

    def write_state(self) -> None:
        self.inner.write_state()

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return self.inner.snapshot(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.inner.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.inner.notify_checkpoint_aborted(checkpoint_id)

    def finish(self) -> None:
        self.inner.finish()

    def close(self) -> None:
        self.inner.close()
