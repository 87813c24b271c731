"""Event time at the source: how records get timestamps, and how watermarks are generated.

    WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=5)).with_timestamp_assigner("ts").with_idleness(
        timedelta(minutes=1)
    )

A watermark t means that no further record with a timestamp <= t is expected. Times are ms since the epoch. A strategy
is an immutable value: every `with_…` returns a new strategy. The engine creates a `BatchWatermarkGenerator` from it
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
    """An object that returns the event time of a record. A plain function or a field's name is accepted in its place."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int, /) -> int:
        """Return the event time in ms since the epoch.

        Args:
            record_timestamp: timestamp that the record already has, for example from Kafka; the smallest int64 if it
                has no timestamp.
        """


class WatermarkGenerator(ABC):
    """Watermarks by the user's rule: punctuated (from `on_event`), periodic (from `on_periodic_emit`), or both.

    >>> class EndOfShift(WatermarkGenerator):
    ...     def on_event(self, value, timestamp):
    ...         return timestamp if value == "end of shift" else None
    """

    @abstractmethod
    def on_event(self, value: Any, timestamp: int, /) -> int | None:
        """Handle a record. The engine calls this method for every record, and emits a returned watermark directly after
        the record.
        """

    def on_periodic_emit(self) -> int | None:
        """Return a watermark or None. The engine calls this method every auto-watermark interval. The engine ignores a
        watermark below an earlier watermark.
        """
        return None


Assigner = TimestampAssigner | Callable[..., Any] | str
"""An assigner object, a function of the value or of (value, previous timestamp), or a field's name."""


@dataclass(frozen=True)
class WatermarkAlignment:
    """An alignment of sources. The sources of a group wait for each other if one source is ahead by more than the
    drift.
    """

    group: str
    max_drift_ms: int
    update_interval_ms: int


@dataclass(frozen=True)
class WatermarkStrategy:
    """The rules for timestamps and watermarks. Start from one of the static methods.

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
        """Return a strategy for timestamps that never decrease. The watermark is 1 ms below the newest timestamp."""
        return WatermarkStrategy("bounded")

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: TimeLike) -> WatermarkStrategy:
        """Return a strategy for records that are late by at most the bound: watermark = newest timestamp - bound - 1 ms, as in Flink."""
        bound = as_millis(max_out_of_orderness, "max_out_of_orderness")
        if bound < 0:
            raise refusal(f"max_out_of_orderness must not be negative, got {bound} ms")
        return WatermarkStrategy("bounded", max_out_of_orderness_ms=bound)

    @staticmethod
    def for_generator(factory: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """Return a strategy with the user's own generator. `factory`, such as a class, is called once per split or subtask."""
        if not callable(factory):
            raise refusal(f"for_generator takes a class or function that creates a generator, not {factory!r}")
        return WatermarkStrategy("custom", generator_factory=factory)

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Return a strategy without watermarks, for processing time only. Bounded input still emits its final watermark."""
        return WatermarkStrategy("none")

    def with_timestamp_assigner(self, timestamp_assigner: Assigner) -> WatermarkStrategy:
        """Set the origin of a record's time: an assigner object, a function, or the name of a field.

        The time may be an int (ms), a `datetime` (UTC if it has no zone) or an `Instant`. A field's name is fastest,
        because columnar input then needs no access to single records.
        """
        if not isinstance(timestamp_assigner, str | TimestampAssigner) and not callable(timestamp_assigner):
            raise refusal(
                f"a timestamp assigner must be a TimestampAssigner, a function or a field's name, not {timestamp_assigner!r}"
            )
        return replace(self, timestamp_assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: TimeLike) -> WatermarkStrategy:
        """Set the time after which a split without records no longer holds back the watermark, until it has records again."""
        timeout = as_millis(idle_timeout, "idle_timeout")
        if timeout <= 0:
            raise refusal(f"idle_timeout must be positive, got {timeout} ms")
        return replace(self, idle_timeout_ms=timeout)

    def with_watermark_alignment(
        self, watermark_group: str, max_allowed_watermark_drift: TimeLike, update_interval: TimeLike | None = None
    ) -> WatermarkStrategy:
        """Keep the sources of a group close to each other in event time.

        A split waits if it is ahead of the group's lowest watermark by more than the drift. A subtask always reads its
        split with the lowest watermark first.

        Args:
            watermark_group: name of the group. Its sources wait for each other.
            max_allowed_watermark_drift: how far ahead a split may be.
            update_interval: accepted without effect. The group's watermark is checked with every epoch, at least once a
                second.
        """
        interval = DEFAULT_ALIGNMENT_INTERVAL_MS if update_interval is None else as_millis(update_interval)
        drift = as_millis(max_allowed_watermark_drift, "max_allowed_watermark_drift")
        return replace(self, alignment=WatermarkAlignment(watermark_group, drift, interval))
