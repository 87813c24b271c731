"""Watermarks batch by batch: the engine's side of a `WatermarkStrategy`, one per split of a source or per subtask.

Where Flink asks a generator every 200 ms, the built-in ones answer here after every batch: their watermark is known then,
and the clock is never behind the data. A custom generator's `on_periodic_emit` is asked at the auto-watermark interval, as
in Flink, and its punctuated watermarks cut the batch: the records behind a mark are processed after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.common.errors import InvalidJob, UserFunctionError
from penstock.common.watermark_strategy import DEFAULT_AUTO_WATERMARK_INTERVAL_MS
from penstock.records.batch import MIN_TIMESTAMP, Batch
from penstock.records.fields import shortened
from penstock.taskmanager.operators.event_time.timestamps import Stamper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.common.watermark_strategy import WatermarkGenerator, WatermarkStrategy


def create_generator(
    strategy: WatermarkStrategy, auto_watermark_interval_ms: int = DEFAULT_AUTO_WATERMARK_INTERVAL_MS
) -> BatchWatermarkGenerator:
    """The engine's side of a strategy, for one split or one subtask.

    Raises:
        InvalidJob: the program's generator is none.

    >>> from penstock.common.watermark_strategy import WatermarkStrategy
    >>> from penstock.records.batch import RowBatch
    >>> strategy = WatermarkStrategy.for_bounded_out_of_orderness(10_000).with_timestamp_assigner("ts")
    >>> parts = create_generator(strategy).process(RowBatch([{"ts": 10_000}, {"ts": 25_000}]))
    >>> [(part.timestamps, mark) for part, mark in parts]
    [([10000, 25000], 14999)]
    """
    custom = None if strategy.generator_factory is None else strategy.generator_factory()
    if custom is not None and not callable(getattr(custom, "on_event", None)):
        raise InvalidJob(f"{strategy.generator_factory!r} made {custom!r}, which has no on_event(value, timestamp)")
    return BatchWatermarkGenerator(strategy, Stamper(strategy.timestamp_assigner), custom, auto_watermark_interval_ms)


class BatchWatermarkGenerator:
    """Timestamps, watermarks and idleness of one split.

    Args:
        custom: the user's generator, for a strategy of the kind `custom`.
        auto_watermark_interval_ms: how often `on_periodic_emit` is asked; 0 switches periodic watermarks off.
    """

    def __init__(
        self,
        strategy: WatermarkStrategy,
        stamper: Stamper,
        custom: WatermarkGenerator | None,
        auto_watermark_interval_ms: int,
    ) -> None:
        self._stamp = stamper.stamp
        self._custom = custom
        self._is_bounded = strategy.kind == "bounded" and auto_watermark_interval_ms > 0
        self._delay = strategy.max_out_of_orderness_ms + 1
        self._idle_timeout = strategy.idle_timeout_ms
        self._interval = auto_watermark_interval_ms
        self._max_timestamp = MIN_TIMESTAMP
        self._watermark = MIN_TIMESTAMP
        self._next_poll: int | None = None
        self._saw_records = True
        self._quiet_since: int | None = None

    # --- records ----------------------------------------------------------------------------------------------

    def process(self, batch: Batch) -> Iterator[tuple[Batch, int | None]]:
        """Stamp a batch and cut it at punctuated watermarks: parts in order, each with the watermark to emit after it."""
        stamped = self._stamp(batch)
        before = self._watermark
        begin = 0
        for end, watermark in self.on_batch(stamped):
            yield (stamped.slice(begin, end) if (begin, end) != (0, len(stamped)) else stamped), watermark
            begin, before = end, watermark
        if begin < len(stamped):
            rest = stamped if begin == 0 else stamped.slice(begin, len(stamped))
            yield rest, (self._watermark if self._watermark > before else None)

    def on_batch(self, batch: Batch) -> list[tuple[int, int]]:
        """Take note of a stamped batch; punctuated marks as (number of records before it, watermark)."""
        if not len(batch):
            return []
        self._saw_records = True
        if self._custom is not None:
            return self._on_events(batch, self._custom)
        timestamps = batch.timestamps
        if timestamps is not None and self._is_bounded:
            newest = max(timestamps) if isinstance(timestamps, list) else int(timestamps.max())
            if newest > self._max_timestamp:
                self._max_timestamp = newest
                self._watermark = max(self._watermark, newest - self._delay)
        return []

    def _on_events(self, batch: Batch, custom: WatermarkGenerator) -> list[tuple[int, int]]:
        rows = batch.rows()
        marks: list[tuple[int, int]] = []
        stamps = [MIN_TIMESTAMP] * len(rows.values) if rows.timestamps is None else rows.timestamps
        on_event, last = custom.on_event, self._watermark
        number = 0
        try:
            for number, (value, timestamp) in enumerate(zip(rows.values, stamps, strict=True), 1):
                watermark = on_event(value, timestamp)
                if watermark is not None and watermark > last:
                    marks.append((number, watermark))
                    last = watermark
        except Exception as error:
            raise UserFunctionError(
                f"{type(custom).__qualname__}.on_event raised {type(error).__name__}: {error} on the record "
                f"{shortened(rows.values[number - 1])}"
            ) from error
        self._watermark = last
        return marks

    # --- watermarks -------------------------------------------------------------------------------------------

    def current(self) -> int | None:
        """The watermark as far as it is known (ms); None before the first."""
        return None if self._watermark == MIN_TIMESTAMP else self._watermark

    def on_periodic(self, now_ms: int) -> int | None:
        """The watermark at processing time `now_ms`; asks a custom generator if the interval has passed."""
        if self._custom is not None and self._interval > 0:
            if self._next_poll is None:
                self._next_poll = now_ms + self._interval
            elif now_ms >= self._next_poll:
                self._next_poll = now_ms + self._interval
                watermark = self._custom.on_periodic_emit()
                if watermark is not None and watermark > self._watermark:
                    self._watermark = watermark
        return self.current()

    def next_poll(self) -> int | None:
        """When (ms) `on_periodic` next has something to do besides idleness; None if never."""
        return self._next_poll if self._custom is not None else None

    # --- idleness ---------------------------------------------------------------------------------------------

    def is_idle(self, now_ms: int) -> bool:
        """Whether no record has come for the idle timeout; measured from the first call after the last record."""
        if self._idle_timeout is None:
            return False
        if self._saw_records or self._quiet_since is None:
            self._saw_records, self._quiet_since = False, now_ms
        return now_ms - self._quiet_since >= self._idle_timeout

    def idle_at(self) -> int | None:
        """When (ms) the split becomes idle if no record comes; None if it is already, or never will be."""
        if self._idle_timeout is None or self._quiet_since is None:
            return None
        return self._quiet_since + self._idle_timeout

    # --- snapshots --------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, int]:
        """JSON-able. A custom generator's own fields are not part of it: it goes on from the next record."""
        return {"max_timestamp": self._max_timestamp, "watermark": self._watermark}

    def restore(self, snapshot: dict[str, int]) -> None:
        self._max_timestamp = snapshot["max_timestamp"]
        self._watermark = snapshot["watermark"]
