"""A limit of one log record per minute. It is for events that clients can cause at any rate, so that they cannot fill
the log.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY_S = 60.0


class Throttle:
    """A counter of events that decides which of them to log.

    >>> throttle = Throttle(clock=iter([0.0, 1.0, 61.0]).__next__)
    >>> [throttle.due() for _ in range(3)]
    [1, 0, 3]
    """

    def __init__(self, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self._every_s = every_s
        self._clock = clock
        self._last_logged = float("-inf")

    def due(self) -> int:
        """Count one event. Return the number of events so far if this event is to be logged, else 0."""
        self.count += 1
        now = self._clock()
        if now - self._last_logged < self._every_s:
            return 0
        self._last_logged = now
        return self.count
