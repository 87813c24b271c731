"""Event time at the source: how records get timestamps, and how far time has come (T5-T18).

    WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=5)).with_timestamp_assigner("ts").with_idleness(
        timedelta(minutes=1)
    )

A watermark t says: no record with a timestamp <= t is expected any more. Times are ms since the epoch. A strategy is a
value: every `with_…` gives a new one. What the engine makes of it is `BatchWatermarkGenerator`
(`penstock.taskmanager.operators.event_time.watermark_generator`), one per split of a source.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from penstock.common.program.user_location import refusal
from penstock.common.time import TimeLike, as_millis

DEFAULT_AUTO_WATERMARK_INTERVAL_MS = 200
DEFAULT_ALIGNMENT_INTERVAL_MS = 1000


class TimestampAssigner(ABC):
    """Gives a record its event time. A plain function or a field's name does as well."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Event time in ms since the epoch.

        Args:
            record_timestamp: what the record carried before, for example from Kafka; the smallest int64 if nothing.
        """


class WatermarkGenerator(ABC):
    """Watermarks by your own rule: punctuated (from `on_event`), periodic (from `on_periodic_emit`), or both.

    >>> class EndOfShift(WatermarkGenerator):
    ...     def on_event(self, value, timestamp):
    ...         return timestamp if value == "end of shift" else None
    """

    @abstractmethod
    def on_event(self, value: Any, timestamp: int) -> int | None:
        """Called for every record. A watermark that is returned is emitted directly after the record (T17)."""

    def on_periodic_emit(self) -> int | None:
        """Called every auto-watermark interval; the watermark, or None. Smaller ones than before are ignored (T14)."""
        return None


Assigner = TimestampAssigner | Callable[..., Any] | str
"""An assigner object, a function of the value or of (value, previous timestamp), or a field's name."""


@dataclass(frozen=True)
class WatermarkAlignment:
    """Sources of one group wait for each other when one is ahead by more than the drift."""

    group: str
    max_drift_ms: int
    update_interval_ms: int


@dataclass(frozen=True)
class WatermarkStrategy:
    """How timestamps are assigned and watermarks made; start from one of the static methods.

    >>> strategy = WatermarkStrategy.for_bounded_out_of_orderness(10_000).with_timestamp_assigner("ts")
    >>> strategy.max_out_of_orderness_ms
    10000
    """

    kind: Literal["bounded", "none", "custom"]
    max_out_of_orderness_ms: int = 0
    generator_factory: Callable[[], WatermarkGenerator] | None = None
    timestamp_assigner: Assigner | None = None
    idle_timeout_ms: int | None = None
    alignment: WatermarkAlignment | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Timestamps never fall: the watermark follows the newest record, 1 ms behind."""
        return WatermarkStrategy("bounded")

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: TimeLike) -> WatermarkStrategy:
        """Records are late by the bound at most: watermark = newest timestamp - bound - 1 ms, as in Flink."""
        bound = as_millis(max_out_of_orderness, "max_out_of_orderness")
        if bound < 0:
            raise refusal(f"max_out_of_orderness must not be negative, got {bound} ms")
        return WatermarkStrategy("bounded", max_out_of_orderness_ms=bound)

    @staticmethod
    def for_generator(factory: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """Watermarks of your own rule; `factory` (a class will do) is called once per split or subtask."""
        if not callable(factory):
            raise refusal(f"for_generator takes a class or function that makes a generator, not {factory!r}")
        return WatermarkStrategy("custom", generator_factory=factory)

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """No event-time clock: for processing time only. The final watermark of bounded input still comes."""
        return WatermarkStrategy("none")

    def with_timestamp_assigner(self, timestamp_assigner: Assigner) -> WatermarkStrategy:
        """Where a record's time comes from: an assigner object, a function, or the name of a field.

        The time may be an int (ms), a `datetime` (naive ones count as UTC) or an `Instant`. A field's name is fastest:
        on columnar input no record is touched.
        """
        if not isinstance(timestamp_assigner, str | TimestampAssigner) and not callable(timestamp_assigner):
            raise refusal(
                f"a timestamp assigner must be a TimestampAssigner, a function or a field's name, not {timestamp_assigner!r}"
            )
        return replace(self, timestamp_assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: TimeLike) -> WatermarkStrategy:
        """A split without records for this long no longer holds the clock back, until it has records again (A47)."""
        timeout = as_millis(idle_timeout, "idle_timeout")
        if timeout <= 0:
            raise refusal(f"idle_timeout must be positive, got {timeout} ms")
        return replace(self, idle_timeout_ms=timeout)

    def with_watermark_alignment(
        self, watermark_group: str, max_allowed_watermark_drift: TimeLike, update_interval: TimeLike | None = None
    ) -> WatermarkStrategy:
        """Keeps the sources of a group close in event time: splits that are further ahead of the group's lowest watermark
        than the drift wait. Splits of one subtask are always read lowest watermark first.

        Args:
            watermark_group: sources with the same name of a group wait for each other.
            max_allowed_watermark_drift: how far ahead a split may be.
            update_interval: accepted; the group's watermark is looked at with every epoch, at least once a second.
        """
        interval = DEFAULT_ALIGNMENT_INTERVAL_MS if update_interval is None else as_millis(update_interval)
        drift = as_millis(max_allowed_watermark_drift, "max_allowed_watermark_drift")
        return replace(self, alignment=WatermarkAlignment(watermark_group, drift, interval))
