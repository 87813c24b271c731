"""`TimerService`: the clocks and timers of a process function."""

from __future__ import annotations

from abc import ABC, abstractmethod


class TimerService(ABC):
    """Timers of the current key; all times are ms since the epoch.

    A timer fires once, when its clock reaches it: `on_timer` is then called with the same key. Registering the same
    timestamp again changes nothing. Timers are state: they survive failures, and processing-time timers that were due
    while the job was down fire at once when it is back.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """The machine's clock."""

    @abstractmethod
    def current_watermark(self) -> int:
        """The event-time clock; the smallest int64 before it is known."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None: ...

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None: ...

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Nothing happens if there is no such timer."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Nothing happens if there is no such timer."""
