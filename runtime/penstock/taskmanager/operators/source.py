"""The source operator: reads the splits of one subtask interleaved, each with a watermark of its own.

Of the splits that have something to read, the one with the lowest watermark is read next, so event time advances evenly
over files of different length and partitions of different speed, and the task's watermark, their minimum, follows
closely (A46, K14). A split that is idle by the strategy's timeout, or read to its end, does not hold the clock back.

A batch is as large as the operators behind it are fast, and takes no longer than commands may wait (`taskmanager.pace`): a
reader's position is always behind the last record that was processed. An epoch ends when its time, its records or its bytes
are used up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.connectors.source import ReadBounds, ReaderContext, Source, SourceReader, Split, SplitReader
from penstock.taskmanager.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch, RowBatch
from penstock.taskmanager.operator import Operator, OperatorContext, Output
from penstock.taskmanager.pace import Pace
from penstock.taskmanager.protocol import SourceProgress, SplitAssignment

if TYPE_CHECKING:
    from penstock.common.watermark_strategy import WatermarkAlignment, WatermarkStrategy
    from penstock.taskmanager.operators.watermark_generator import BatchWatermarkGenerator

READ_RECORDS = 10_000
READ_BYTES = 4 * 1024 * 1024
_NO_BOUND = 1 << 62


class _OpenSplit:
    __slots__ = ("generator", "id", "reader", "touched", "watermark")

    def __init__(
        self, assignment: SplitAssignment, reader: SplitReader, generator: BatchWatermarkGenerator | None
    ) -> None:
        self.id = assignment.id
        self.reader = reader
        self.generator = generator
        self.watermark: int | None = assignment.watermark
        self.touched = True


class SourceOperator(Operator):
    """Runs a `Source` in one subtask. Its input is time, not batches: the task calls `read`."""

    def __init__(self, source: Source, strategy: WatermarkStrategy | None) -> None:
        self.source = source
        self.strategy = strategy
        self._splits: dict[str, _OpenSplit] = {}
        self._finished: list[str] = []
        self._reader: SourceReader | None = None
        self._no_more_splits = False
        self._drained = False
        self._aligned_to = MAX_TIMESTAMP
        self._emitted = MIN_TIMESTAMP
        self._idle = False
        self._pace = Pace(READ_RECORDS, READ_BYTES)
        self._records_left = _NO_BOUND
        self._bytes_left = _NO_BOUND
        self.records_out = 0

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._reader = self.source.create_reader(
            ReaderContext(
                context.subtask, context.parallelism, context.uid, context.object_store_options, operator=context
            )
        )

    def assign(self, assignments: list[SplitAssignment], *, no_more_splits: bool) -> None:
        """Open new splits at their positions."""
        assert self._reader is not None
        for assignment in assignments:
            with self.context.named_in_errors():
                split = Split(assignment.id, assignment.properties, assignment.size, assignment.files, assignment.root)
                reader = self._reader.open_split(split, assignment.position)
            generator = (
                None
                if self.strategy is None
                else self.strategy.create_generator(self.context.auto_watermark_interval_ms)
            )
            if generator is not None and assignment.generator is not None:
                generator.restore(assignment.generator)
            self._splits[assignment.id] = _OpenSplit(assignment, reader, generator)
        self._no_more_splits = no_more_splits

    @property
    def alignment(self) -> WatermarkAlignment | None:
        return None if self.strategy is None else self.strategy.alignment

    def align(self, limit: int) -> None:
        """Splits whose watermark is past `limit` (ms) wait (watermark alignment)."""
        self._aligned_to = limit

    @property
    def exhausted(self) -> bool:
        return self._no_more_splits and not self._splits

    def drain(self) -> None:
        """Stop for good: no more is read, the final watermark follows (stop --drain)."""
        self._drained = True
        self._advance(MAX_TIMESTAMP)

    def begin_epoch(self, max_records: int = 0, max_bytes: int = 0) -> None:
        """How much may be read until the next one begins; 0 = without bound."""
        self._records_left = max_records or _NO_BOUND
        self._bytes_left = max_bytes or _NO_BOUND

    @property
    def has_used_up(self) -> bool:
        """The epoch's bound is reached: nothing is read until the next epoch."""
        return self._records_left <= 0 or self._bytes_left <= 0

    def read(self, deadline_ms: int) -> Iterator[int]:
        """Read until the deadline, the epoch's bound, or nothing is there; yields the records read after every batch."""
        self._update_watermark()
        dry: set[str] = set()
        clock = self.context.clock
        while not self.has_used_up and clock.now_ms() <= deadline_ms:
            split = self._next_split(dry)
            if split is None:
                return
            started = time.perf_counter()
            with self.context.named_in_errors():
                batch = split.reader.read(ReadBounds(min(self._pace.records, self._records_left), READ_BYTES))
            self._emit_rejected(split)
            if batch is None or not len(batch):
                if split.reader.finished:
                    self._close_split(split)
                    self._update_watermark()
                else:
                    self._take_own_watermark(split)
                    self._update_watermark()
                    dry.add(split.id)
                continue
            split.touched = True
            size = batch.approximate_bytes()
            self._records_left -= len(batch)
            self._bytes_left -= size
            self.records_out += len(batch)
            marks = split.reader.take_watermarks()
            if marks:
                self._emit_between(split, batch.rows(), marks)
            else:
                self._emit(split, batch)
            self._take_own_watermark(split)
            if split.reader.finished:
                self._close_split(split)
            self._update_watermark()
            yield len(batch)
            # With the time that the output took on its way: what is behind this task may be slow, too.
            self._pace.took(len(batch), time.perf_counter() - started, size)

    def _emit(self, split: _OpenSplit, batch: Batch) -> None:
        if split.generator is None:
            self.output.emit(batch)
            return
        for part, watermark in split.generator.process(batch):
            if part is not None:
                self.output.emit(part)
            if watermark is not None:
                self._advance_split(split, watermark)

    def _emit_between(self, split: _OpenSplit, batch: RowBatch, marks: list[tuple[int, int]]) -> None:
        """Emit records with the watermarks that the source put among them."""
        begin, times = 0, batch.timestamps
        for end, watermark in [*marks, (len(batch), MIN_TIMESTAMP)]:
            if end > begin:
                self._emit(split, RowBatch(batch.values[begin:end], None if times is None else times[begin:end]))
                begin = end
            self._advance_split(split, watermark)

    def _advance_split(self, split: _OpenSplit, watermark: int) -> None:
        if split.watermark is None or watermark > split.watermark:
            split.watermark = watermark
            self._update_watermark()

    def _next_split(self, dry: set[str]) -> _OpenSplit | None:
        best: _OpenSplit | None = None
        best_watermark = MAX_TIMESTAMP
        for split in self._splits.values():
            if split.id in dry:
                continue
            watermark = MIN_TIMESTAMP if split.watermark is None else split.watermark
            if watermark > self._aligned_to:
                continue
            if best is None or watermark < best_watermark:
                best, best_watermark = split, watermark
        if best is not None and best.generator is None and len(self._splits) > 1 and not self.source.in_order:
            # Without event time: take turns.
            self._splits[best.id] = self._splits.pop(best.id)
        return best

    @staticmethod
    def _take_own_watermark(split: _OpenSplit) -> None:
        """A source function may emit watermarks of its own."""
        watermark = split.reader.watermark()
        if watermark is not None and (split.watermark is None or watermark > split.watermark):
            split.watermark = watermark
            split.touched = True

    def _emit_rejected(self, split: _OpenSplit) -> None:
        rejected = split.reader.take_rejected()
        if rejected:
            split.touched = True
            for tag in self.source.side_output_tags():
                self.output.emit_side(tag, RowBatch(list(rejected)))

    def _close_split(self, split: _OpenSplit) -> None:
        split.reader.close()
        del self._splits[split.id]
        self._finished.append(split.id)

    def _update_watermark(self) -> None:
        """The subtask's watermark is the minimum over its splits that are neither finished nor idle."""
        if self._drained:
            return
        if not self._splits:
            if self._no_more_splits:
                self._advance(MAX_TIMESTAMP)
            else:
                self._set_idle(True)
            return
        if self.strategy is None and all(split.watermark is None for split in self._splits.values()):
            return
        now = self.context.clock.now_ms()
        lowest = MAX_TIMESTAMP
        active = False
        for split in self._splits.values():
            if split.reader.is_idle() or (split.generator is not None and split.generator.is_idle(now)):
                continue
            active = True
            watermark = MIN_TIMESTAMP if split.watermark is None else split.watermark
            lowest = min(lowest, watermark)
        self._set_idle(not active)
        if active and lowest > self._emitted:
            self._advance(lowest)

    def _advance(self, watermark: int) -> None:
        if watermark > self._emitted:
            self._emitted = watermark
            self._set_idle(False)
            self.output.emit_watermark(watermark)

    def _set_idle(self, idle: bool) -> None:
        if idle != self._idle:
            self._idle = idle
            self.output.emit_idle(idle)

    def advance_processing_time(self, now: int) -> None:
        for split in self._splits.values():
            if split.generator is not None:
                watermark = split.generator.on_periodic(now)
                if watermark is not None and (split.watermark is None or watermark > split.watermark):
                    split.watermark = watermark
                    split.touched = True
        self._update_watermark()

    def current_watermark(self) -> int:
        return self._emitted

    def progress(self) -> SourceProgress:
        """What goes into the epoch's ack; resets the list of touched splits."""
        watermark = None if self._idle or self.exhausted else self._emitted
        progress = SourceProgress(exhausted=self.exhausted, watermark=watermark)
        due: int | None = None
        for split in self._splits.values():
            if split.touched:
                progress.positions[split.id] = split.reader.position
                progress.watermarks[split.id] = split.watermark
                if split.generator is not None:
                    progress.generators[split.id] = split.generator.snapshot()
                split.touched = False
            lag = split.reader.lag()
            if lag is not None:
                progress.lag = (progress.lag or 0) + lag
            at = split.reader.next_record_at()
            if at is not None:
                due = at if due is None else min(due, at)
        progress.next_record_at = due
        progress.finished = self._finished
        self._finished = []
        return progress

    def next_record_at(self) -> int | None:
        """When the next record is due (ms), as far as the readers know."""
        times = [split.reader.next_record_at() for split in self._splits.values()]
        return min((at for at in times if at is not None), default=None)

    def close(self) -> None:
        for split in self._splits.values():
            split.reader.close()
        self._splits.clear()
        if self._reader is not None:
            self._reader.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"source": self.source, "strategy": self.strategy}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["source"], state["strategy"])  # type: ignore[misc]
