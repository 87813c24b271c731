"""Timers of a keyed operator: an interface that operators use and the state package implements.

Each (domain, timestamp, key, namespace) has at most one timer, so a second registration has no effect. Timers are keyed
state: they are part of the snapshot and move by key group. Processing-time timers that became due while the job was
down fire immediately after a restore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

OnTimer = Callable[[int, Any, Any], None]
"""Callback with (timestamp ms, key, namespace). The key context already has this key and namespace."""


class InternalTimerService(Protocol):
    """Timers of one operator in one subtask.

    The task creates this service with the backend, and the backend's snapshot contains the timers.
    """

    current_watermark: int

    def set_callbacks(self, on_event_time: OnTimer, on_processing_time: OnTimer) -> None: ...

    def current_processing_time(self) -> int: ...

    def register_event_time_timer(self, timestamp: int) -> None:
        """Register a timer for the current key and namespace of the key context."""
        ...

    def register_processing_time_timer(self, timestamp: int) -> None: ...

    def delete_event_time_timer(self, timestamp: int) -> None: ...

    def delete_processing_time_timer(self, timestamp: int) -> None: ...

    def advance_watermark(self, timestamp: int) -> None:
        """Fire every event-time timer <= timestamp in order of time, including timers that are registered during this call."""
        ...

    def advance_processing_time(self, now: int) -> None: ...

    def no_more_processing_time(self) -> AbstractContextManager[None]:
        """Drop processing-time timers that are registered in this context. In batch mode, processing time ends with the input."""
        ...

    def next_processing_time(self) -> int | None: ...

    def event_time_timers(self) -> Iterator[tuple[int, Any, Any]]:
        """Yield (timestamp, key, namespace), for tests and the state reader."""
        ...
