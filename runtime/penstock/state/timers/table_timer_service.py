"""The timers of a keyed operator: `timers.InternalTimerService` over two timer tables."""

from __future__ import annotations

from contextlib import contextmanager
from operator import index
from typing import TYPE_CHECKING, Any

from penstock.common.errors import StateTypeError
from penstock.state.encoding.tagged import type_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.state.backend import KeyContext
    from penstock.state.timers.internal_timer_service import OnTimer
    from penstock.state.timers.timer_table import Pair, TimerTable
    from penstock.state.ttl.expiry import Clock

MIN_WATERMARK = -(2**63)
MAX_TIME = 2**63 - 1
"""A timer for later fires then: with the final watermark."""


class TimerService:
    """Registers timers for the current key and namespace, fires them in order of time.

    Timers of one timestamp fire in the order of their registration, or, after a restore, in the order of the snapshot.

    Args:
        event_time: timers of event time; part of the backend's snapshots.
        processing_time: timers of processing time; likewise.
        key_context: set to a timer's key and namespace while it fires; left at the last one's.
    """

    def __init__(
        self, event_time: TimerTable, processing_time: TimerTable, key_context: KeyContext, clock: Clock
    ) -> None:
        self.current_watermark = MIN_WATERMARK
        self._event_time = event_time
        self._processing_time = processing_time
        self._at = key_context
        self._clock = clock
        self._on_event_time: OnTimer = _ignore
        self._on_processing_time: OnTimer = _ignore
        self._register_event = self._first_of_event_time
        self._register_processing = self._first_of_processing_time

    def set_callbacks(self, on_event_time: OnTimer, on_processing_time: OnTimer) -> None:
        self._on_event_time = on_event_time
        self._on_processing_time = on_processing_time

    def current_processing_time(self) -> int:
        return self._clock.now_ms()

    def register_event_time_timer(self, timestamp: int) -> None:
        at = self._at
        if type(timestamp) is not int or timestamp >= MAX_TIME:
            timestamp = as_time(timestamp)
        self._register_event(timestamp, (at.key, at.namespace))

    def register_processing_time_timer(self, timestamp: int) -> None:
        at = self._at
        if type(timestamp) is not int or timestamp >= MAX_TIME:
            timestamp = as_time(timestamp)
        self._register_processing(timestamp, (at.key, at.namespace))

    def _first_of_event_time(self, timestamp: int, pair: Pair) -> None:
        """The first timer: its key is refused here, if a snapshot could not write it."""
        self._event_time.check_key(pair[0])
        self._register_event = self._event_time.register
        self._register_event(timestamp, pair)

    def _first_of_processing_time(self, timestamp: int, pair: Pair) -> None:
        self._processing_time.check_key(pair[0])
        self._register_processing = self._processing_time.register
        self._register_processing(timestamp, pair)

    def delete_event_time_timer(self, timestamp: int) -> None:
        if type(timestamp) is not int or timestamp >= MAX_TIME:
            timestamp = as_time(timestamp)
        self._event_time.delete(timestamp, (self._at.key, self._at.namespace))

    def delete_processing_time_timer(self, timestamp: int) -> None:
        if type(timestamp) is not int or timestamp >= MAX_TIME:
            timestamp = as_time(timestamp)
        self._processing_time.delete(timestamp, (self._at.key, self._at.namespace))

    def advance_watermark(self, timestamp: int) -> None:
        self.current_watermark = timestamp
        self._fire(self._event_time, timestamp, self._on_event_time)

    def advance_processing_time(self, now: int) -> None:
        self._fire(self._processing_time, now, self._on_processing_time)

    @contextmanager
    def no_more_processing_time(self) -> Iterator[None]:
        self._register_processing = _forget
        try:
            yield
        finally:
            self._register_processing = self._first_of_processing_time

    def _fire(self, table: TimerTable, until: int, on_timer: OnTimer) -> None:
        at = self._at
        for timestamp, pair in table.due(until):
            key, namespace = at.key, at.namespace = pair
            on_timer(timestamp, key, namespace)

    def next_processing_time(self) -> int | None:
        return self._processing_time.first()

    def event_time_timers(self) -> Iterator[tuple[int, Any, Any]]:
        return self._event_time.timers()

    def processing_time_timers(self) -> Iterator[tuple[int, Any, Any]]:
        """As `event_time_timers`."""
        return self._processing_time.timers()


def as_time(timestamp: Any) -> int:
    """The time of a timer, within 64 bits.

    Raises:
        StateTypeError: it is no whole number.

    >>> as_time(5), as_time(1 << 70) == MAX_TIME
    (5, True)
    """
    try:
        if isinstance(timestamp, bool):
            raise TypeError
        return max(MIN_WATERMARK, min(index(timestamp), MAX_TIME))
    except TypeError:
        raise StateTypeError(
            f"a timer at {timestamp!r}: a {type_name(type(timestamp))} is no time",
            remedy="give ms since the epoch as an int: int(…) of a float, int(moment.timestamp() * 1000) of a datetime",
        ) from None


def _ignore(timestamp: int, key: Any, namespace: Any) -> None:
    """Timers of an operator that set no callbacks."""


def _forget(timestamp: int, pair: tuple[Any, Any]) -> None:
    """A timer of a time that does not come."""
