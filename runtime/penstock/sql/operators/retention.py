"""`Retention`: a timer that clears the whole state of a key. It serves nodes whose plan has no TTLs of states, as in Flink."""

from __future__ import annotations

from typing import Protocol

from penstock.datastream.functions import RuntimeContext
from penstock.functions.timer_service import TimerService
from penstock.state.descriptors import ValueStateDescriptor


class _WithTimers(Protocol):
    def timer_service(self) -> TimerService: ...


class Retention:
    """The time at which the state of a key is cleared, in processing time. Each record of the key moves the time.

    Args:
        ttl_ms: shortest time between the last record and the clearing. The longest possible time is 1.5 times as long. 0 means never.
    """

    def __init__(self, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms

    def open(self, context: RuntimeContext) -> None:
        if self._ttl_ms:
            self._state = context.get_state(ValueStateDescriptor("cleanup-timer"))

    def extend(self, ctx: _WithTimers) -> None:
        """Move the time after a record of the current key."""
        if not self._ttl_ms:
            return
        timers, former = ctx.timer_service(), self._state.value()
        now = timers.current_processing_time()
        if former is not None and now + self._ttl_ms <= former:
            return
        when = now + self._ttl_ms * 3 // 2
        timers.register_processing_time_timer(when)
        if former is not None:
            timers.delete_processing_time_timer(former)
        self._state.update(when)

    def is_over(self, timestamp: int) -> bool:
        """Return whether this timer clears the state, and forget it if so."""
        if not self._ttl_ms or self._state.value() != timestamp:
            return False
        self._state.clear()
        return True
