"""`assign_timestamps_and_watermarks` as an operator: gives records timestamps and makes watermarks from them (T12-T18).

Timestamps and watermarks that come in are overwritten: the upstream's watermarks and idleness end here, except the final
watermark of bounded input. Put it close to the source: behind an exchange, one watermark stands for many partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.errors import PenstockError
from penstock.graph.operator import Operator, OperatorSnapshot
from penstock.records.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch
from penstock.taskmanager.operators.event_time.watermark_generator import create_generator

if TYPE_CHECKING:
    from penstock.common.watermark_strategy import WatermarkStrategy

GENERATOR_STATE = "watermark-generator"


class TimestampsAndWatermarksOperator(Operator):
    """One generator per subtask; its progress is kept, so time does not go back after a restore."""

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self.strategy = strategy

    def open(self) -> None:
        context = self.context
        self._generator = create_generator(self.strategy, context.auto_watermark_interval_ms)
        self._saved: list[Any] = context.operator_state.get_union_list_state(GENERATOR_STATE)
        self._restore()
        self._emitted = MIN_TIMESTAMP
        self._idle = False
        self._generator.on_periodic(context.clock.now_ms())

    def _restore(self) -> None:
        """This subtask's own progress if the parallelism is the same, else the least of all."""
        context, saved = self.context, self._saved
        own = [
            s for subtask, parallelism, s in saved if (subtask, parallelism) == (context.subtask, context.parallelism)
        ]
        if own:
            self._generator.restore(own[0])
        elif saved:
            self._generator.restore(min((s for _, _, s in saved), key=lambda s: int(s["watermark"])))

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        self._saved[:] = [(self.context.subtask, self.context.parallelism, self._generator.snapshot())]
        return OperatorSnapshot()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        if not len(batch):
            return
        if self._idle:
            self._set_idle(is_idle=False)
        emit = self.output.emit
        try:
            for part, watermark in self._generator.process(batch):
                emit(part)
                self._advance(watermark)
        except PenstockError as error:
            error.operator = error.operator or self.context.name
            error.location = error.location or self.context.user_location
            raise

    def process_watermark(self, timestamp: int) -> None:
        if timestamp == MAX_TIMESTAMP:
            if self._idle:
                self._set_idle(is_idle=False)
            self._advance(timestamp)

    def process_idle(self, is_idle: bool) -> None:
        """Upstream's idleness ends here; this operator's own strategy decides."""

    def advance_processing_time(self, now: int) -> None:
        self._advance(self._generator.on_periodic(now))
        if self._emitted != MAX_TIMESTAMP and not self._idle and self._generator.is_idle(now):
            self._set_idle(is_idle=True)

    def next_processing_time(self) -> int | None:
        if self._emitted == MAX_TIMESTAMP:
            return None
        times = (self._generator.next_poll(), None if self._idle else self._generator.idle_at())
        return min((time for time in times if time is not None), default=None)

    def next_wake(self) -> int | None:
        if self._emitted != MAX_TIMESTAMP and not self._idle:
            self._generator.is_idle(self.context.clock.now_ms())  # begins to count
        return self.next_processing_time()

    def current_watermark(self) -> int:
        return self._emitted

    def _advance(self, watermark: int | None) -> None:
        if watermark is not None and watermark > self._emitted:
            self._emitted = watermark
            self.output.emit_watermark(watermark)

    def _set_idle(self, *, is_idle: bool) -> None:
        self._idle = is_idle
        self.output.emit_idle(is_idle)
