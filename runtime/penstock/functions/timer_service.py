"""`TimerService`: the clocks and timers of a process function."""

from __future__ import annotations

from abc import ABC, abstractmethod


class TimerService(ABC):
    """The timers of the current key. All times are ms since the epoch.

    A timer fires once, when its clock reaches it. The operator then calls `on_timer` with the same key. Registering a
    timestamp twice has no effect. Timers are state, so they survive failures. Processing-time timers that were due
    while the job was down fire immediately when the job runs again.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """Return the time of the machine's clock."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Return the event-time clock, or the smallest int64 before the first watermark."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None: ...

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None: ...

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete a timer. A timer that does not exist is ignored."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete a timer. A timer that does not exist is ignored."""
