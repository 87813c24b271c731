"""Clocks for tests of a system clock that is changed."""

from __future__ import annotations

from penstock.taskmanager.worker import ManualClock


class JumpingClock(ManualClock):
    """A manual clock whose processing time can jump. Its monotonic time cannot jump."""

    def __init__(self, now_ms: int = 0) -> None:
        super().__init__(now_ms)
        self.offset_ms = 0

    def now_ms(self) -> int:
        return self._now + self.offset_ms

    def set(self, now_ms: int) -> None:
        super().set(now_ms - self.offset_ms)

    def jump(self, by_ms: int) -> None:
        """Move the system clock, as an administrator or NTP does."""
        self.offset_ms += by_ms
