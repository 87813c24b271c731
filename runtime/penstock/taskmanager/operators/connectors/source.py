"""The source operator: reads the splits of one subtask interleaved, each with a watermark of its own.

Of the splits that have something to read, the one with the lowest watermark is read next, so event time advances evenly
over files of different length and partitions of different speed, and the task's watermark, their minimum, follows
closely (A46, K14). A split that is idle by the strategy's timeout, or read to its end, does not hold the clock back; one
that has not been read yet does. A batch costs the same however many splits wait (`split_order`).

A batch is as large as the operators behind it are fast, and takes no longer than commands may wait (`taskmanager.pace`): a
reader's position is always behind the last record that was processed. An epoch ends when its time, its records or its bytes
are used up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.connectors.source import ReadBounds, ReaderContext, Source, SourceReader, Split, SplitReader
from penstock.functions.operator_context import OperatorContext
from penstock.graph.operator import Operator, OperatorSnapshot, Output
from penstock.records.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch, RowBatch
from penstock.taskmanager.operators.connectors.split_order import LowestWatermark, ReadOrder
from penstock.taskmanager.operators.event_time.watermark_generator import BatchWatermarkGenerator, create_generator
from penstock.taskmanager.pace import Pace
from penstock.taskmanager.protocol import SourceProgress, SplitAssignment

if TYPE_CHECKING:
    from penstock.common.watermark_strategy import WatermarkStrategy

READ_RECORDS = 10_000
READ_BYTES = 4 * 1024 * 1024
_NO_BOUND = 1 << 62
_RETRY_MS = 20
_RETRIED_PER_MS = 10
"""Splits that have nothing are asked again so often while others have something: 1,000 of them every 100 ms."""


class _OwnedSplit:
    """A split of this subtask; opened when it is read first."""

    __slots__ = (
        "assignment",
        "generator",
        "has_given_all",
        "id",
        "is_closed",
        "is_quiet",
        "number",
        "reader",
        "rests",
        "told_lag",
        "watermark",
    )

    def __init__(self, assignment: SplitAssignment, number: int) -> None:
        self.id = assignment.id
        self.assignment = assignment
        self.number = number
        self.reader: SplitReader | None = None
        self.generator: BatchWatermarkGenerator | None = None
        self.watermark: int | None = assignment.watermark
        self.is_closed = False
        self.is_quiet = False
        """The last read gave nothing, or what comes next is not due yet."""
        self.rests = False
        """The last read gave all that there was: it is read again when a moment has passed."""
        self.has_given_all: Callable[[], bool] = _never
        self.told_lag = -1

    def is_idle(self, now_ms: int) -> bool:
        """What was not asked yet, or has more to give, is not idle however long it waits for its turn."""
        if self.reader is None:
            return False
        return self.reader.is_idle() or (
            self.is_quiet and self.generator is not None and self.generator.is_idle(now_ms)
        )

    def idle_since(self) -> int:
        """Since when (ms) it is idle; 0: nobody knows."""
        return 0 if self.generator is None else self.generator.idle_at() or 0

    def next_wake(self, now_ms: int) -> int | None:
        """When (ms) its watermark may change without a record."""
        if self.generator is None:
            return None
        self.is_idle(now_ms)  # begins to count
        times = (self.generator.next_poll(), self.generator.idle_at() if self.is_quiet else None)
        return min((at for at in times if at is not None), default=None)


class SourceOperator(Operator):
    """Runs a `Source` in one subtask. Its input is time, not batches: the task calls `read`."""

    def __init__(self, source: Source, strategy: WatermarkStrategy | None) -> None:
        self.source = source
        self.strategy = strategy
        self._splits: dict[str, _OwnedSplit] = {}
        self._open: dict[str, _OwnedSplit] = {}
        self._touched: dict[str, _OwnedSplit] = {}
        """What the next ack tells of."""
        self._order = ReadOrder(in_turns=strategy is None and not source.in_order)
        self._clocks = LowestWatermark()
        self._idle_splits: set[str] = set()
        """Taken out of `_clocks`."""
        self._clocked = 0
        """How many of the splits have a watermark."""
        self._number = 0
        self._unread_lag: int | None = None
        self._finished: list[str] = []
        self._told: dict[str, Any] = {}
        """Positions of splits that move without records, as the last ack that had them told."""
        self._last_positions: dict[str, Any] = {}
        """Of those that have ended since the last ack, where the source wants them told."""
        self._reader: SourceReader | None = None
        self._no_more_splits = False
        self._drained = False
        self._aligned_to = MAX_TIMESTAMP
        self._emitted = MIN_TIMESTAMP
        self._idle = False
        self._retried_at = self._retry_ms = 0
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
        """Take new splits; they are read from their positions on."""
        assert self._reader is not None
        for assignment in assignments:
            self._number += 1
            split = self._splits[assignment.id] = _OwnedSplit(assignment, self._number)
            self._clocked += split.watermark is not None
            self._touched[split.id] = split
            self._order.add(split)
            self._clocks.add(split)
            self._count_unread(split, 1)
        self._no_more_splits = no_more_splits

    def _open_split(self, owned: _OwnedSplit) -> SplitReader:
        assert self._reader is not None
        assignment = owned.assignment
        with self.context.named_in_errors():
            reader = owned.reader = self._reader.open_split(_split_of(assignment), assignment.position)
        # A reader may have the methods without the class.
        owned.has_given_all = getattr(reader, "has_given_all", _never)
        self._open[owned.id] = owned
        self._count_unread(owned, -1)
        if self.strategy is not None:
            owned.generator = create_generator(self.strategy, self.context.auto_watermark_interval_ms)
            if assignment.generator is not None:
                owned.generator.restore(assignment.generator)
            if self.strategy.kind == "custom":
                owned.generator.on_periodic(self.context.clock.now_ms())  # from now on it says when it is to be asked
        return reader

    def _count_unread(self, owned: _OwnedSplit, sign: int) -> None:
        assert self._reader is not None
        lag = self._reader.lag_of(_split_of(owned.assignment), owned.assignment.position)
        if lag is not None:
            self._unread_lag = (self._unread_lag or 0) + sign * lag

    def limit_batches(self, most: int) -> None:
        """Operators behind it take no more records at once."""
        self._pace = Pace(min(most, READ_RECORDS), READ_BYTES)

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

    @property
    def wants_epoch(self) -> bool:
        """Nothing is read until the next epoch: the bound is reached, or the last split is read, which the JobManager does not know yet."""
        return self.has_used_up or (bool(self._finished) and not self._splits)

    def read(self, deadline_ms: int) -> Iterator[int]:
        """Read until the deadline, the epoch's bound, or nothing is there.

        Yields after every batch: its records; their number is negative if nothing else is due now.
        """
        self._update_watermark()
        clock = self.context.clock
        now = clock.now_ms()
        if not self._order.has_ready:
            self._retry(now)
        while not self.has_used_up and now <= deadline_ms:
            if self._is_retry_due(now):
                self._retry(now)
            split = self._order.take(self._aligned_to)
            if split is None:
                return
            assert isinstance(split, _OwnedSplit)
            started = time.perf_counter()
            reader = split.reader or self._open_split(split)
            with self.context.named_in_errors():
                most = min(self._pace.records, self._records_left)
                batch = reader.read(ReadBounds(most, READ_BYTES))
            self._emit_rejected(split, reader)
            count = 0 if batch is None else len(batch)
            split.is_quiet = not count
            split.rests = False
            if not split.is_idle(clock.now_ms()) and split.id in self._idle_splits:
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
            self._take_own_watermark(split, reader)
            if reader.finished:
                self._close_split(split, reader)
            elif count and not (count < most and (split.has_given_all() or self._is_ahead(reader))):
                self._order.add(split)
            else:
                split.rests = bool(count) and not self._is_ahead(reader)
                split.is_quiet = not split.rests
                self._order.set_aside(split)
            self._update_watermark()
            if count:
                self._pace.took(count, time.perf_counter() - started, size)
                yield count if self._order.has_ready else -count
            now = clock.now_ms()

    @property
    def is_due(self) -> bool:
        """A split has something, or those that had nothing were asked some time ago."""
        return self._order.has_ready or self._is_retry_due(self.context.clock.now_ms())

    def _is_retry_due(self, now_ms: int) -> bool:
        """Also if the machine's clock was set back."""
        return not 0 <= now_ms - self._retried_at < self._retry_ms

    def _retry(self, now_ms: int) -> None:
        """Ask again those that had nothing; beside one that always has something the less often the more there are."""
        self._retried_at, self._retry_ms = now_ms, max(_RETRY_MS, self._order.retry() // _RETRIED_PER_MS)

    def _is_ahead(self, reader: SplitReader) -> bool:
        """Its next record is not due yet. To read it again just to be told so is a third of what a few records cost."""
        at = reader.next_record_at()
        return at is not None and at > self.context.clock.now_ms()

    def _emit(self, split: _OwnedSplit, batch: Batch) -> None:
        if split.generator is None:
            self.output.emit(batch)
            return
        for part, watermark in split.generator.process(batch):
            if part is not None:
                self.output.emit(part)
            if watermark is not None:
                self._advance_split(split, watermark)

    def _emit_between(self, split: _OwnedSplit, batch: RowBatch, marks: list[tuple[int, int]]) -> None:
        """Emit records with the watermarks that the source put among them."""
        begin, times = 0, batch.timestamps
        for end, watermark in [*marks, (len(batch), MIN_TIMESTAMP)]:
            if end > begin:
                self._emit(split, RowBatch(batch.values[begin:end], None if times is None else times[begin:end]))
                begin = end
            self._advance_split(split, watermark)

    def _advance_split(self, split: _OwnedSplit, watermark: int) -> None:
        if self._raise_watermark(split, watermark):
            self._update_watermark()

    def _raise_watermark(self, split: _OwnedSplit, watermark: int) -> bool:
        if split.watermark is not None and watermark <= split.watermark:
            return False
        self._clocked += split.watermark is None
        split.watermark = watermark
        return True

    def _take_own_watermark(self, split: _OwnedSplit, reader: SplitReader) -> None:
        """A source function may emit watermarks of its own."""
        watermark = reader.watermark()
        if watermark is not None and self._raise_watermark(split, watermark):
            self._touched[split.id] = split

    def _emit_rejected(self, split: _OwnedSplit, reader: SplitReader) -> None:
        rejected = reader.take_rejected()
        if rejected:
            self._touched[split.id] = split
            for tag in self.source.side_output_tags():
                self.output.emit_side(tag, RowBatch(list(rejected)))

    def _close_split(self, split: _OwnedSplit, reader: SplitReader) -> None:
        if self.source.tells_last_positions:
            self._last_positions[split.id] = reader.position
        reader.close()
        split.is_closed = True
        self._clocked -= split.watermark is not None
        del self._splits[split.id], self._open[split.id]
        self._touched.pop(split.id, None)
        self._idle_splits.discard(split.id)
        self._finished.append(split.id)

    def _update_watermark(self) -> None:
        """The subtask's watermark is the minimum over its splits that are neither finished nor idle. If several have become idle
        since the last look it goes as far as it would have gone had each been seen in its moment: to the last one's.
        """
        if self._drained:
            return
        if not self._splits:
            if self._no_more_splits:
                self._advance(MAX_TIMESTAMP)
            else:
                self._set_idle(True)
            return
        if self.source.keeps_no_time:
            self._set_idle(True)
            return
        if self.strategy is None and not self._clocked:
            return
        now = self.context.clock.now_ms()
        lowest = self._clocks.first()
        last: _OwnedSplit | None = None
        while lowest is not None:
            assert isinstance(lowest, _OwnedSplit)
            if not lowest.is_idle(now):
                last = lowest
                break
            if last is None or lowest.idle_since() >= last.idle_since():
                last = lowest
            self._idle_splits.add(lowest.id)
            self._clocks.take_first()
            lowest = self._clocks.first()
        if last is not None and last.watermark is not None:
            self._advance(last.watermark)
        self._set_idle(lowest is None)

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
        if self.strategy is not None and self.strategy.kind == "custom":
            for split in self._open.values():
                assert split.generator is not None
                watermark = split.generator.on_periodic(now)
                if watermark is not None and self._raise_watermark(split, watermark):
                    self._touched[split.id] = split
        self._update_watermark()

    def current_watermark(self) -> int:
        return self._emitted

    def progress(self) -> SourceProgress:
        """What goes into the epoch's ack; resets the list of touched splits."""
        watermark = None if self._idle or self.exhausted else self._emitted
        progress = SourceProgress(exhausted=self.exhausted, watermark=watermark, lag=self._unread_lag)
        for split in self._touched.values():
            if split.reader is None:
                progress.positions[split.id] = split.assignment.position
                continue
            progress.positions[split.id] = split.reader.position
            progress.watermarks[split.id] = split.watermark
            if split.generator is not None:
                progress.generators[split.id] = split.generator.snapshot()
        self._touched = {}
        progress.positions |= self._last_positions
        self._last_positions = {}
        due: int | None = None
        for split in self._open.values():
            assert split.reader is not None
            if split.reader.moves_without_records and split.reader.position != self._told.get(split.id):
                progress.positions[split.id] = self._told[split.id] = split.reader.position
            lag = split.reader.lag()
            if lag is not None:
                progress.lag = (progress.lag or 0) + lag
                if lag != split.told_lag:
                    progress.lags[split.id] = split.told_lag = lag
            at = split.reader.next_record_at()
            if at is not None:
                due = at if due is None else min(due, at)
        progress.next_record_at = due
        progress.finished = self._finished
        self._finished = []
        return progress

    def next_read_at(self) -> int | None:
        """When (ms) it is worth to read again, if nothing could be read now; 0: nobody knows, None: not before a command.

        Commands bring splits, let those go on that watermark alignment holds back, and begin the next epoch.
        """
        if self.has_used_up:
            return None
        quiet = [
            split.reader.next_record_at()
            for split in self._open.values()
            if split.reader and (split.is_quiet or split.rests)
        ]
        return min((at or 0 for at in quiet), default=None)

    def next_wake(self) -> int | None:
        """Idleness of splits, and generators of the user's that are asked now and then."""
        if self.strategy is None:
            return None
        now = self.context.clock.now_ms()
        times = [split.next_wake(now) for split in self._open.values() if split.id not in self._idle_splits]
        return min((at for at in times if at is not None), default=None)

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        taken = getattr(self._reader, "snapshot", None)  # a reader may have the methods without the class
        if taken is not None:
            taken(checkpoint_id)
        return OperatorSnapshot()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        told = getattr(self._reader, "notify_checkpoint_complete", None)
        if told is not None:
            told(checkpoint_id)

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


def _split_of(assignment: SplitAssignment) -> Split:
    return Split(assignment.id, assignment.properties, assignment.size, assignment.files, assignment.root)


def _never() -> bool:
    return False
