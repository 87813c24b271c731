"""`assign_timestamps_and_watermarks` as an operator: it sets the timestamps of records and makes watermarks from them.

It replaces the timestamps and watermarks of its input. It also ignores the upstream's watermarks and idleness, except
the final watermark of bounded input. Use it close to the source, because after an exchange one watermark represents
many partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.errors import PenstockError
from penstock.graph.operator import Operator, OperatorSnapshot
from penstock.records.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch
from penstock.taskmanager.operators.event_time.watermark_generator import EmissionTimes, create_generator

if TYPE_CHECKING:
    from penstock.common.watermark_strategy import WatermarkStrategy

GENERATOR_STATE = "watermark-generator"


class TimestampsAndWatermarksOperator(Operator):
    """The operator with one generator per subtask.

    It saves the generator's progress, so time does not go back after a restore.
    """

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self.strategy = strategy

    def open(self) -> None:
        context = self.context
        self._generator = create_generator(self.strategy)
        self._saved: list[Any] = context.operator_state.get_union_list_state(GENERATOR_STATE)
        self._restore()
        self._emitted = MIN_TIMESTAMP
        self._idle = False
        self._clock = context.clock
        self._is_periodic = self.strategy.kind != "none"
        self._times = EmissionTimes(context.auto_watermark_interval_ms, self._clock.monotonic_ms())
        self._expects_all_the_time = self.strategy.kind == "custom"
        if self._expects_all_the_time or self._generator.reached() != self._generator.current():
            self._times.expect(self._clock.monotonic_ms())

    def _restore(self) -> None:
        """Restore this subtask's own progress if the parallelism is the same, or else the lowest progress of all
        subtasks."""
        context, saved = self.context, self._saved
        of_this_subtask = [
            s for subtask, parallelism, s in saved if (subtask, parallelism) == (context.subtask, context.parallelism)
        ]
        if of_this_subtask:
            self._generator.restore(of_this_subtask[0])
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
        if self._is_periodic:
            now = self._clock.monotonic_ms()
            self._times.expect(now)
            self._emit_if_due(now)

    def _emit_if_due(self, now: int) -> None:
        if self._times.take(now):
            self.emit_periodic_watermark()

    def emit_periodic_watermark(self) -> None:
        self._times.take_early()
        if self._emitted != MAX_TIMESTAMP:
            self._advance(self._generator.emit_periodic())
            if self._expects_all_the_time:
                self._times.expect(self._clock.monotonic_ms())

    def process_watermark(self, timestamp: int) -> None:
        if timestamp == MAX_TIMESTAMP:
            if self._idle:
                self._set_idle(is_idle=False)
            self._advance(timestamp)

    def process_idle(self, is_idle: bool) -> None:
        """Ignore the upstream's idleness, because this operator's strategy decides."""

    def advance_processing_time(self, now: int) -> None:
        self._advance(self._generator.current())
        now = self._clock.monotonic_ms()
        self._emit_if_due(now)
        if self._emitted != MAX_TIMESTAMP and not self._idle and self._generator.is_idle(now):
            self.emit_periodic_watermark()
            self._set_idle(is_idle=True)

    def next_processing_time(self) -> int | None:
        if self._emitted == MAX_TIMESTAMP:
            return None
        times = (self._times.due, None if self._idle else self._generator.idle_at())
        at = min((time for time in times if time is not None), default=None)
        return None if at is None else at - self._clock.monotonic_ms() + self._clock.now_ms()

    def next_wake(self) -> int | None:
        if self._emitted != MAX_TIMESTAMP and not self._idle:
            self._generator.is_idle(self._clock.monotonic_ms())  # starts the idle timeout
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
