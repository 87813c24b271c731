"""Back-off between starts of an executor whose predecessors failed early. Pure."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_S = 0.25
LONGEST_S = 10.0
HOPELESS = 3
"""Number of consecutive executors without a registration after which the next start is considered hopeless."""


@dataclass
class StartBackoff:
    """Back-off of one TaskManager.

    >>> backoff = StartBackoff()
    >>> backoff.may_start(0.0)
    True
    >>> backoff.record_failure("no space is left", 0.0)
    >>> backoff.may_start(0.2), backoff.may_start(0.25)
    (False, True)
    >>> for _ in range(2):
    ...     backoff.record_failure("no space is left", 1.0)
    >>> backoff.may_start(1.9), backoff.may_start(2.0), backoff.reason
    (False, True, 'no space is left')
    >>> backoff.release()
    >>> backoff.may_start(0.0), backoff.reason
    (True, '')
    """

    _missed: int = 0
    _until: float = 0.0
    _reason: str = ""

    def record_failure(self, reason: str, now: float) -> None:
        """Record an executor that could not be started, or ended before it registered with the driver. `now` is in seconds."""
        self._until = now + min(LONGEST_S, FIRST_S * 2.0 ** min(self._missed, 10))
        self._missed += 1
        self._reason = reason

    def release(self) -> None:
        """Reset the back-off, because the driver has an executor."""
        self._missed, self._until, self._reason = 0, 0.0, ""

    def may_start(self, now: float) -> bool:
        return now >= self._until

    @property
    def reason(self) -> str:
        """Return why further starts are hopeless, or an empty string if they are not."""
        return self._reason if self._missed >= HOPELESS else ""
