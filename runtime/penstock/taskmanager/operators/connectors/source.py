"""The source operator: it reads the splits of one subtask one after the other. Each split has its own watermark.

Among the splits that have records, the operator next reads the split with the lowest watermark. So event time advances
evenly over files of different length and partitions of different speed. The watermark of the task is the minimum over
the splits, and it stays close to their watermarks.

Periodic watermarks are emitted for all splits together at the auto-watermark interval, as in Flink. A split does not
hold the clock back if it is idle (by the strategy's timeout) or has been read to its end. A split that has not been
read yet holds the clock back. The cost of a batch does not depend on the number of waiting splits (`split_order`).

The size of a batch adapts to the speed of the next operators, and a batch takes no longer than commands may wait
(`taskmanager.pace`). The position of a reader is always directly behind the last processed record. An epoch ends when
it reaches its limit of time, records or bytes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.connectors.core.source import ReadBounds, ReaderContext, Source, SourceReader, SplitReader
from penstock.functions.operator_context import OperatorContext
from penstock.graph.operator import Operator, OperatorSnapshot, Output
from penstock.records.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch, RowBatch
from penstock.taskmanager.operators.connectors.owned_split import OwnedSplit, never
from penstock.taskmanager.operators.connectors.split_order import LowestWatermark, ReadOrder
from penstock.taskmanager.operators.event_time.watermark_generator import (
    EmissionTimes,
    create_generator,
)
from penstock.taskmanager.pace import Pace
from penstock.taskmanager.protocol import SourceProgress, SplitAssignment

if TYPE_CHECKING:
    from penstock.common.watermark_strategy import WatermarkStrategy

READ_RECORDS = 10_000
READ_BYTES = 4 * 1024 * 1024
_UNLIMITED = 1 << 62
_RETRY_MS = 20
_RETRIED_PER_MS = 10
"""Number of splits without records that are read again per ms if other splits have records.

Example: 1,000 splits every 100 ms.
"""


class SourceOperator(Operator):
    """The operator that runs a `Source` in one subtask. It has no input batches: the task calls `read`."""

    def __init__(self, source: Source, strategy: WatermarkStrategy | None) -> None:
        self.source = source
        self.strategy = strategy
        self._splits: dict[str, OwnedSplit] = {}
        self._open: dict[str, OwnedSplit] = {}
        self._touched: dict[str, OwnedSplit] = {}
        """Splits to report in the next ack."""
        self._order = ReadOrder(in_turns=not source.in_order and (strategy is None or not source.bounded))
        self._clocks = LowestWatermark()
        self._idle_splits: set[str] = set()
        """Splits that have been removed from `_clocks`."""
        self._clocked = 0
        """Number of splits that have a watermark."""
        self._number = 0
        self._unread_lag: int | None = None
        self._finished: list[str] = []
        self._reported: dict[str, Any] = {}
        """Positions in the last ack, for splits whose position moves without records."""
        self._last_positions: dict[str, Any] = {}
        """Last positions of the splits that have ended since the last ack, if the source needs them."""
        self._reader: SourceReader | None = None
        self._ends = False
        self._drained = False
        self._aligned_to = MAX_TIMESTAMP
        self._emitted = MIN_TIMESTAMP
        self._unemitted: dict[str, OwnedSplit] = {}
        """Splits that have read records since the last emission of periodic watermarks."""
        self._last_reached = MIN_TIMESTAMP
        """The highest progress of the splits that have ended."""
        self._idle = False
        self._retried_at = self._retry_ms = 0
        self._pace = Pace(READ_RECORDS, READ_BYTES)
        self._records_left = _UNLIMITED
        self._bytes_left = _UNLIMITED
        self.records_out = 0

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._times = EmissionTimes(context.auto_watermark_interval_ms, context.clock.monotonic_ms())
        self._reader = self.source.create_reader(
            ReaderContext(
                context.subtask, context.parallelism, context.uid, context.object_store_options, operator=context
            )
        )

    def assign(self, assignments: list[SplitAssignment], *, ends: bool) -> None:
        """Take new splits and read them from their positions.

        Args:
            ends: whether the subtask ends when it has no more splits. Otherwise the subtask becomes idle, and its event
                time does not change.
        """
        assert self._reader is not None
        for assignment in assignments:
            self._number += 1
            split = self._splits[assignment.id] = OwnedSplit(assignment, self._number)
            self._clocked += split.watermark is not None
            self._touched[split.id] = split
            self._order.add(split)
            self._clocks.add(split)
            self._count_unread(split, 1)
        self._ends = ends

    def _open_split(self, owned: OwnedSplit) -> SplitReader:
        assert self._reader is not None
        assignment = owned.assignment
        with self.context.named_in_errors():
            reader = owned.reader = self._reader.open_split(owned.split(), assignment.position)
        # A reader may define the methods without the base class.
        owned.is_caught_up = getattr(reader, "is_caught_up", getattr(reader, "has_given_all", never))
        self._open[owned.id] = owned
        self._count_unread(owned, -1)
        if self.strategy is not None:
            owned.generator = create_generator(self.strategy)
            if assignment.generator is not None:
                owned.generator.restore(assignment.generator)
                owned.reached = owned.generator.reached()
            if self.strategy.kind == "custom":
                self._times.expect(self.context.clock.monotonic_ms())
            elif owned.reached != owned.watermark:
                self._expect_emission(owned)
        return reader

    def _count_unread(self, owned: OwnedSplit, sign: int) -> None:
        assert self._reader is not None
        lag = self._reader.lag_of(owned.split(), owned.assignment.position)
        if lag is not None:
            self._unread_lag = (self._unread_lag or 0) + sign * lag

    def limit_batches(self, most: int) -> None:
        """Limit the size of batches to what the next operators accept."""
        self._pace = Pace(min(most, READ_RECORDS), READ_BYTES)

    def align(self, limit: int) -> None:
        """Pause the splits whose watermark is later than `limit` (ms), for watermark alignment."""
        self._aligned_to = limit

    @property
    def is_idle(self) -> bool:
        """Whether the operator has reported that it does not hold event time back until it has records again."""
        return self._idle

    @property
    def exhausted(self) -> bool:
        return self._ends and not self._splits

    def drain(self) -> None:
        """Stop reading permanently and emit the final watermark (stop --drain)."""
        self._drained = True
        self._advance(MAX_TIMESTAMP)

    def begin_epoch(self, max_records: int = 0, max_bytes: int = 0) -> None:
        """Set how much may be read in this epoch. 0 means without limit."""
        self._records_left = max_records or _UNLIMITED
        self._bytes_left = max_bytes or _UNLIMITED

    @property
    def has_spent_budget(self) -> bool:
        """Whether the limit of the epoch is reached. Nothing is read until the next epoch."""
        return self._records_left <= 0 or self._bytes_left <= 0

    @property
    def needs_epoch(self) -> bool:
        """Whether nothing is read until the next epoch: the limit is reached, or all splits are read and the JobManager
        does not know it yet.
        """
        return self.has_spent_budget or (bool(self._finished) and not self._splits)

    def read(self, deadline_ms: int) -> Iterator[int]:
        """Read until the deadline (monotonic ms), the limit of the epoch, or until no more records are available.

        Yield after every batch the number of its records. The number is negative if no other record is due now.
        """
        self._update_watermark()
        clock = self.context.clock
        now = clock.monotonic_ms()
        if not self._order.has_ready:
            self._retry(now)
        while not self.has_spent_budget and now <= deadline_ms:
            if self._is_retry_due(now):
                self._retry(now)
            split = self._order.take(self._aligned_to)
            if split is None:
                return
            assert isinstance(split, OwnedSplit)
            started = time.perf_counter()
            reader = split.reader or self._open_split(split)
            with self.context.named_in_errors():
                most = min(self._pace.records, self._records_left)
                batch = reader.read(ReadBounds(most, READ_BYTES))
            self._emit_rejected(split, reader)
            count = 0 if batch is None else len(batch)
            split.is_quiet = not count
            split.rests = False
            if not split.is_idle(clock.monotonic_ms()) and split.id in self._idle_splits:
                self._idle_splits.discard(split.id)
                self._clocks.add(split)
            size = 0
            if batch is not None and count:
                size = batch.approximate_bytes()
                self._touched[split.id] = split
                self._records_left -= count
                self._bytes_left -= size
                self.records_out += count
                marks = reader.take_watermarks()
                if marks:
                    self._emit_between(split, batch.rows(), marks)
                else:
                    self._emit(split, batch)
            self._read_own_watermark(split, reader)
            if reader.finished:
                self._close_split(split, reader)
            elif count and not (count < most and (split.is_caught_up() or self._is_ahead(reader))):
                self._order.add(split)
            else:
                split.rests = bool(count) and not self._is_ahead(reader)
                split.is_quiet = not split.rests
                self._order.set_aside(split)
            now = clock.monotonic_ms()
            if self._times.take(now):
                self.emit_periodic_watermark()
            else:
                self._update_watermark()
            if count:
                self._pace.record_batch(count, time.perf_counter() - started, size)
                yield count if self._order.has_ready else -count
                now = clock.monotonic_ms()

    @property
    def is_due(self) -> bool:
        """Whether a split has records, or it is time to read splits without records again."""
        return self._order.has_ready or self._is_retry_due(self.context.clock.monotonic_ms())

    def _is_retry_due(self, now_ms: int) -> bool:
        return now_ms - self._retried_at >= self._retry_ms

    def _retry(self, now_ms: int) -> None:
        """Read splits without records again.

        While another split has records, the time until the next retry grows with the number of splits without records.
        """
        self._retried_at, self._retry_ms = now_ms, max(_RETRY_MS, self._order.retry() // _RETRIED_PER_MS)

    def _is_ahead(self, reader: SplitReader) -> bool:
        """Return whether the next record is not due yet.

        Without this check, the extra read costs a third of a small batch.
        """
        at = reader.next_record_at()
        return at is not None and at > self.context.clock.now_ms()

    def _emit(self, split: OwnedSplit, batch: Batch) -> None:
        if split.generator is None:
            self.output.emit(batch)
            return
        for part, watermark in split.generator.process(batch):
            if part is not None:
                self.output.emit(part)
            if watermark is not None:
                self._advance_split(split, watermark)
        split.reached = split.generator.reached()
        if split.reached != split.watermark:
            self._expect_emission(split)

    def _expect_emission(self, split: OwnedSplit) -> None:
        self._unemitted[split.id] = split
        if self._times.due is None:
            self._times.expect(self.context.clock.monotonic_ms())

    def emit_periodic_watermark(self) -> None:
        """Emit the watermark of all splits together at the end of the auto-watermark interval."""
        is_custom = self.strategy is not None and self.strategy.kind == "custom"
        for split in list(self._open.values() if is_custom else self._unemitted.values()):
            assert split.generator is not None
            watermark = split.generator.emit_periodic()
            if watermark is not None and self._raise_watermark(split, watermark):
                self._touched[split.id] = split
        self._unemitted = {}
        self._times.take_early()
        if is_custom and self._open:
            self._times.expect(self.context.clock.monotonic_ms())
        self._update_watermark()

    def _emit_between(self, split: OwnedSplit, batch: RowBatch, marks: list[tuple[int, int]]) -> None:
        """Emit records with the watermarks that the source put between them."""
        begin, times = 0, batch.timestamps
        for end, watermark in [*marks, (len(batch), MIN_TIMESTAMP)]:
            if end > begin:
                self._emit(split, RowBatch(batch.values[begin:end], None if times is None else times[begin:end]))
                begin = end
            self._advance_split(split, watermark)

    def _advance_split(self, split: OwnedSplit, watermark: int) -> None:
        if self._raise_watermark(split, watermark):
            self._update_watermark()

    def _raise_watermark(self, split: OwnedSplit, watermark: int) -> bool:
        if split.watermark is not None and watermark <= split.watermark:
            return False
        self._clocked += split.watermark is None
        split.watermark = watermark
        if split.reached is None or split.reached < watermark:
            split.reached = watermark
        return True

    def _read_own_watermark(self, split: OwnedSplit, reader: SplitReader) -> None:
        """Take the watermark that a source function emitted."""
        watermark = reader.watermark()
        if watermark is not None and self._raise_watermark(split, watermark):
            self._touched[split.id] = split

    def _emit_rejected(self, split: OwnedSplit, reader: SplitReader) -> None:
        rejected = reader.take_rejected()
        if rejected:
            self._touched[split.id] = split
            for tag in self.source.side_output_tags():
                self.output.emit_side(tag, RowBatch(list(rejected)))

    def _close_split(self, split: OwnedSplit, reader: SplitReader) -> None:
        if self.source.needs_last_positions:
            self._last_positions[split.id] = reader.position
        reader.close()
        split.is_closed = True
        self._unemitted.pop(split.id, None)
        if split.reached is not None:
            self._last_reached = max(self._last_reached, split.reached)
        self._clocked -= split.watermark is not None
        del self._splits[split.id], self._open[split.id]
        self._touched.pop(split.id, None)
        self._idle_splits.discard(split.id)
        self._finished.append(split.id)

    def _update_watermark(self) -> None:
        """Set the watermark of the subtask: the minimum over its splits that are neither finished nor idle.

        If several splits have become idle since the last call, the watermark advances to that of the split that became
        idle last. The result is the same as if each split had been checked at the moment it became idle.
        """
        if self._drained:
            return
        if not self._splits:
            if self._ends:
                self._advance(MAX_TIMESTAMP)
            else:
                self._advance(self._last_reached)
                self._set_idle(True)
            return
        if self.source.excluded_from_watermarks:
            self._set_idle(True)
            return
        if self.strategy is None and not self._clocked:
            return
        now = self.context.clock.monotonic_ms()
        lowest = self._clocks.first()
        last: OwnedSplit | None = None
        while lowest is not None:
            assert isinstance(lowest, OwnedSplit)
            if not lowest.is_idle(now):
                last = lowest
                break
            if lowest.id in self._unemitted:  # before the split's watermark is ignored
                self._emit_before_idle(lowest)
                lowest = self._clocks.first()
                continue
            if last is None or lowest.idle_since() >= last.idle_since():
                last = lowest
            self._idle_splits.add(lowest.id)
            self._clocks.take_first()
            lowest = self._clocks.first()
        if last is not None and last.watermark is not None:
            self._advance(last.watermark)
        self._set_idle(lowest is None)

    def _emit_before_idle(self, split: OwnedSplit) -> None:
        """Emit the periodic watermark of one split that becomes idle."""
        del self._unemitted[split.id]
        assert split.generator is not None
        watermark = split.generator.emit_periodic()
        if watermark is not None and self._raise_watermark(split, watermark):
            self._touched[split.id] = split

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
        if self._times.take(self.context.clock.monotonic_ms()):
            self.emit_periodic_watermark()
        else:
            self._update_watermark()

    def current_watermark(self) -> int:
        return self._emitted

    def progress(self) -> SourceProgress:
        """Return the progress for the ack of the epoch, and reset the list of splits to report."""
        watermark = None if self._idle or self.exhausted else self._reached
        progress = SourceProgress(exhausted=self.exhausted, watermark=watermark, lag=self._unread_lag)
        for split in self._touched.values():
            split.add_to(progress)
        self._touched = {}
        progress.positions |= self._last_positions
        self._last_positions = {}
        due: int | None = None
        for split in self._open.values():
            assert split.reader is not None
            if split.reader.moves_without_records and split.reader.position != self._reported.get(split.id):
                progress.positions[split.id] = self._reported[split.id] = split.reader.position
            lag = split.reader.lag()
            if lag is not None:
                progress.lag = (progress.lag or 0) + lag
                if lag != split.reported_lag:
                    progress.lags[split.id] = split.reported_lag = lag
            at = split.reader.next_record_at()
            if at is not None:
                due = at if due is None else min(due, at)
        progress.next_record_at = due
        progress.finished = self._finished
        self._finished = []
        return progress

    @property
    def _reached(self) -> int:
        """The progress of the splits that are not idle, which watermark alignment uses."""
        if self.strategy is None or self.strategy.alignment is None or len(self._open) < len(self._splits):
            return self._emitted
        marks = (split.reached for split in self._open.values() if split.id not in self._idle_splits)
        return max(self._emitted, min((MIN_TIMESTAMP if at is None else at for at in marks), default=MIN_TIMESTAMP))

    def next_read_at(self) -> int | None:
        """Return when (ms) to read again if no record is available now. 0 means unknown, None means not before a
        command.

        A command adds splits, resumes splits that watermark alignment has paused, or starts the next epoch.
        """
        if self.has_spent_budget:
            return None
        quiet = [
            split.reader.next_record_at()
            for split in self._open.values()
            if split.reader and (split.is_quiet or split.rests)
        ]
        return min((at or 0 for at in quiet), default=None)

    def next_wake(self) -> int | None:
        """Return when (ms) the next split becomes idle, or the next periodic watermark is due."""
        if self.strategy is None:
            return None
        clock = self.context.clock
        now = clock.monotonic_ms()
        times = [self._times.due]
        if self.strategy.idle_timeout_ms is not None:
            times += [split.next_wake(now) for split in self._open.values() if split.id not in self._idle_splits]
        at = min((at for at in times if at is not None), default=None)
        return None if at is None else at - now + clock.now_ms()

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        taken = getattr(self._reader, "snapshot", None)  # a reader may lack the base class
        if taken is not None:
            taken(checkpoint_id)
        return OperatorSnapshot()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        notify = getattr(self._reader, "notify_checkpoint_complete", None)
        if notify is not None:
            notify(checkpoint_id)

    def close(self) -> None:
        for split in self._open.values():
            if split.reader is not None:
                split.reader.close()
        self._splits.clear()
        self._open.clear()
        if self._reader is not None:
            self._reader.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"source": self.source, "strategy": self.strategy}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["source"], state["strategy"])  # type: ignore[misc]
