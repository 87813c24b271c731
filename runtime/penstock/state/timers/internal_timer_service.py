"""Timers of a keyed operator (T21, T22): a contract the operators use and the state package implements.

One timer per (domain, timestamp, key, namespace): registering it twice is registering it once. Timers are keyed state:
they are part of the snapshot, move by key group, and processing-time timers that became due while the job was down fire
at once after a restore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

OnTimer = Callable[[int, Any, Any], None]
"""(timestamp ms, key, namespace); the key context is already set to them."""


class InternalTimerService(Protocol):
    """Timers of one operator in one subtask. Created by the task with the backend; owned by the backend's snapshot."""

    current_watermark: int

    def set_callbacks(self, on_event_time: OnTimer, on_processing_time: OnTimer) -> None: ...

    def current_processing_time(self) -> int: ...

    def register_event_time_timer(self, timestamp: int) -> None:
        """For the current key and namespace of the key context."""
        ...

    def register_processing_time_timer(self, timestamp: int) -> None: ...

    def delete_event_time_timer(self, timestamp: int) -> None: ...

    def delete_processing_time_timer(self, timestamp: int) -> None: ...

    def advance_watermark(self, timestamp: int) -> None:
        """Fire, in order of time, every event-time timer <= timestamp, also those registered while firing (C4)."""
        ...

    def advance_processing_time(self, now: int) -> None: ...

    def no_more_processing_time(self) -> AbstractContextManager[None]:
        """Timers of processing time that are registered meanwhile are forgotten: in batch mode that time ends with the input."""
        ...

    def next_processing_time(self) -> int | None: ...

    def event_time_timers(self) -> Iterator[tuple[int, Any, Any]]:
        """(timestamp, key, namespace), for tests and the state reader."""
        ...
