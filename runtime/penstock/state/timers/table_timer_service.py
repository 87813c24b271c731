"""The timers of a keyed operator: `timers.InternalTimerService` over two timer tables."""

from __future__ import annotations

from contextlib import contextmanager
from operator import index
from typing import TYPE_CHECKING, Any

from penstock.common.errors import StateTypeError
from penstock.state.encoding.tagged import type_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.state.key_context import KeyContext
    from penstock.state.timers.internal_timer_service import OnTimer
    from penstock.state.timers.timer_table import Pair, TimerTable
    from penstock.state.ttl.expiry import Clock

MIN_WATERMARK = -(2**63)
MAX_TIME = 2**63 - 1
"""Largest timestamp. A timer for a later time gets this timestamp, and fires with the final watermark."""


class TimerService:
    """The service that registers timers for the current key and namespace, and fires them in order of time.

    Timers of one timestamp fire in the order of their registration. After a restore they fire in the order of the
    snapshot.

    Args:
        event_time: timers of event time. The backend's snapshots contain them.
        processing_time: timers of processing time. The backend's snapshots contain them, too.
        key_context: gets the key and namespace of each timer before the timer fires. It is not reset after the last
            timer.
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
        self._register_event = self._register_first_event_time
        self._register_processing = self._register_first_processing_time

    def set_callbacks(self, on_event_time: OnTimer, on_processing_time: OnTimer) -> None:
        self._on_event_time = on_event_time
        self._on_processing_time = on_processing_time

    def current_processing_time(self) -> int:
        return self._clock.now_ms()

    def register_event_time_timer(self, timestamp: int) -> None:
        at = self._at
        if type(timestamp) is not int or timestamp >= MAX_TIME:
            timestamp = limited_timestamp(timestamp)
        self._register_event(timestamp, (at.key, at.namespace))

    def register_processing_time_timer(self, timestamp: int) -> None:
        at = self._at
        if type(timestamp) is not int or timestamp >= MAX_TIME:
            timestamp = limited_timestamp(timestamp)
        self._register_processing(timestamp, (at.key, at.namespace))

    def _register_first_event_time(self, timestamp: int, pair: Pair) -> None:
        """Register the first timer. Raise an error if a snapshot could not write its key."""
        self._event_time.check_key(pair[0])
        self._register_event = self._event_time.register
        self._register_event(timestamp, pair)

    def _register_first_processing_time(self, timestamp: int, pair: Pair) -> None:
        self._processing_time.check_key(pair[0])
        self._register_processing = self._processing_time.register
        self._register_processing(timestamp, pair)

    def delete_event_time_timer(self, timestamp: int) -> None:
        if type(timestamp) is not int or timestamp >= MAX_TIME:
            timestamp = limited_timestamp(timestamp)
        self._event_time.delete(timestamp, (self._at.key, self._at.namespace))

    def delete_processing_time_timer(self, timestamp: int) -> None:
        if type(timestamp) is not int or timestamp >= MAX_TIME:
            timestamp = limited_timestamp(timestamp)
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
            self._register_processing = self._register_first_processing_time

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
        """Yield processing-time timers as `event_time_timers` does."""
        return self._processing_time.timers()


def limited_timestamp(timestamp: Any) -> int:
    """Return the time of a timer, limited to 64 bits.

    Raises:
        StateTypeError: the time is not a whole number.

    >>> limited_timestamp(5), limited_timestamp(1 << 70) == MAX_TIME
    (5, True)
    """
    try:
        if isinstance(timestamp, bool):
            raise TypeError
        return max(MIN_WATERMARK, min(index(timestamp), MAX_TIME))
    except TypeError:
        raise StateTypeError(
            f"the timer has the time {timestamp!r}, but a {type_name(type(timestamp))} is not a time",
            remedy="pass ms since the epoch as an int: int(…) of a float, int(moment.timestamp() * 1000) of a datetime",
        ) from None


def _ignore(timestamp: int, key: Any, namespace: Any) -> None:
    """Ignore a timer of an operator without callbacks."""


def _forget(timestamp: int, pair: tuple[Any, Any]) -> None:
    """Drop a timer whose time will not come."""
