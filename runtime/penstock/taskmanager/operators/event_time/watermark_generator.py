"""The engine's implementation of a `WatermarkStrategy`: one generator per split of a source or per subtask.

A *periodic* watermark is emitted at the auto-watermark interval, as in Flink. A built-in strategy or `on_periodic_emit`
of a custom generator returns it. Between two emissions records may arrive in any order without being late.

A *punctuated* watermark (returned by `on_event`) splits the batch. Records after the watermark are processed after it
has been emitted.

`reached` is the progress of the records, and also changes between two emissions. Sources use it to read their splits
evenly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.common.errors import InvalidJob, UserFunctionError
from penstock.records.batch import MIN_TIMESTAMP, Batch
from penstock.records.fields import shortened
from penstock.taskmanager.operators.event_time.timestamps import Stamper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.common.watermark_strategy import WatermarkGenerator, WatermarkStrategy


def create_generator(strategy: WatermarkStrategy) -> BatchWatermarkGenerator:
    """Return the engine's generator of a strategy, for one split or one subtask.

    Raises:
        InvalidJob: the object that the program created is not a generator.

    >>> from penstock.common.watermark_strategy import WatermarkStrategy
    >>> from penstock.records.batch import RowBatch
    >>> strategy = WatermarkStrategy.for_bounded_out_of_orderness(10_000).with_timestamp_assigner("ts")
    >>> generator = create_generator(strategy)
    >>> [(part.timestamps, mark) for part, mark in generator.process(RowBatch([{"ts": 10_000}, {"ts": 25_000}]))]
    [([10000, 25000], None)]
    >>> generator.emit_periodic()
    14999
    """
    custom = None if strategy.generator_factory is None else strategy.generator_factory()
    if custom is not None and not callable(getattr(custom, "on_event", None)):
        raise InvalidJob(f"{strategy.generator_factory!r} returned {custom!r}, which has no on_event(value, timestamp)")
    return BatchWatermarkGenerator(strategy, Stamper(strategy.timestamp_assigner), custom)


class EmissionTimes:
    """The times of periodic watermarks: multiples of the interval since the start. A time exists only while a watermark
    is expected.

    Args:
        interval_ms: 0 switches periodic watermarks off.
        start_ms: start. This time and all times of the methods are on the monotonic clock.

    >>> times = EmissionTimes(200, start_ms=1000)
    >>> times.expect(1450)
    >>> times.due, times.take(1599), times.take(1600), times.due
    (1600, False, True, None)
    """

    def __init__(self, interval_ms: int, start_ms: int) -> None:
        self._interval = interval_ms
        self._start = start_ms
        self.due: int | None = None
        """The next emission (ms), or None if none is expected."""

    def expect(self, now_ms: int) -> None:
        """Schedule an emission at the next multiple of the interval."""
        if self.due is None and self._interval > 0:
            self.due = now_ms + self._interval - (now_ms - self._start) % self._interval

    def take(self, now_ms: int) -> bool:
        """Return whether it is time to emit. If it is, the next emission must be scheduled with `expect`."""
        if self.due is None or now_ms < self.due:
            return False
        self.due = None
        return True

    def take_early(self) -> None:
        """Cancel the scheduled emission, because everything is emitted now."""
        self.due = None


class BatchWatermarkGenerator:
    """Timestamps, watermarks and idleness of one split or subtask.

    Args:
        custom: the user's generator, if the strategy has the kind `custom`.
    """

    def __init__(self, strategy: WatermarkStrategy, stamper: Stamper, custom: WatermarkGenerator | None) -> None:
        self._stamp = stamper.stamp
        self._custom = custom
        self._is_bounded = strategy.kind == "bounded"
        self._delay = strategy.max_out_of_orderness_ms + 1
        self._idle_timeout = strategy.idle_timeout_ms
        self._max_timestamp = MIN_TIMESTAMP
        self._watermark = MIN_TIMESTAMP
        self._saw_records = True
        self._quiet_since: int | None = None

    # --- records ----------------------------------------------------------------------------------------------

    def process(self, batch: Batch) -> Iterator[tuple[Batch, int | None]]:
        """Stamp a batch and split it at punctuated watermarks. Yield the parts in order, each with the watermark to
        emit after it."""
        stamped = self._stamp(batch)
        begin = 0
        for end, watermark in self.on_batch(stamped):
            yield (stamped.slice(begin, end) if (begin, end) != (0, len(stamped)) else stamped), watermark
            begin = end
        if begin < len(stamped):
            yield (stamped if begin == 0 else stamped.slice(begin, len(stamped))), None

    def on_batch(self, batch: Batch) -> list[tuple[int, int]]:
        """Process a stamped batch. Return its punctuated watermarks, each with the number of records before it."""
        if not len(batch):
            return []
        self._saw_records = True
        if self._custom is not None:
            return self._on_events(batch, self._custom)
        timestamps = batch.timestamps
        if timestamps is not None and self._is_bounded:
            newest = max(timestamps) if isinstance(timestamps, list) else int(timestamps.max())
            self._max_timestamp = max(self._max_timestamp, newest)
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
        """Return the watermark that was last emitted (ms), or None before the first one."""
        return None if self._watermark == MIN_TIMESTAMP else self._watermark

    def reached(self) -> int | None:
        """Return the watermark (ms) that the records so far justify, emitted or not, or None before the first one."""
        if self._is_bounded and self._max_timestamp != MIN_TIMESTAMP:
            return max(self._watermark, self._max_timestamp - self._delay)
        return self.current()

    def emit_periodic(self) -> int | None:
        """Return the watermark (ms) to emit at the end of an interval, or None before the first one."""
        watermark = self.reached() if self._custom is None else self._custom.on_periodic_emit()
        if watermark is not None and watermark > self._watermark:
            self._watermark = watermark
        return self.current()

    # --- idleness ---------------------------------------------------------------------------------------------

    def is_idle(self, now_ms: int) -> bool:
        """Return whether no record has arrived during the idle timeout (monotonic ms).

        The timeout starts with the first call after the last record.
        """
        if self._idle_timeout is None:
            return False
        if self._saw_records or self._quiet_since is None:
            self._saw_records, self._quiet_since = False, now_ms
        return now_ms - self._quiet_since >= self._idle_timeout

    def idle_at(self) -> int | None:
        """Return when (ms) the split becomes or became idle without further records.

        None means that it never becomes idle, or that `is_idle` has not started the timeout.
        """
        if self._idle_timeout is None or self._quiet_since is None:
            return None
        return self._quiet_since + self._idle_timeout

    # --- snapshots --------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, int]:
        """Return a snapshot for JSON.

        It does not include the fields of a custom generator. After a restore, they have their initial values.
        """
        return {"max_timestamp": self._max_timestamp, "watermark": self._watermark}

    def restore(self, snapshot: dict[str, int]) -> None:
        self._max_timestamp = snapshot["max_timestamp"]
        self._watermark = snapshot["watermark"]
