"""How soon an executor may be started again whose predecessors were of no use. Pure."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_S = 0.25
LONGEST_S = 10.0
HOPELESS = 3
"""So many in a row that the driver never had: the next would do the same."""


@dataclass
class StartBrake:
    """Of one TaskManager.

    >>> brake = StartBrake()
    >>> brake.is_free(0.0)
    True
    >>> brake.missed("no space is left", 0.0)
    >>> brake.is_free(0.2), brake.is_free(0.25)
    (False, True)
    >>> for _ in range(2):
    ...     brake.missed("no space is left", 1.0)
    >>> brake.is_free(1.9), brake.is_free(2.0), brake.reason
    (False, True, 'no space is left')
    >>> brake.release()
    >>> brake.is_free(0.0), brake.reason
    (True, '')
    """

    _missed: int = 0
    _until: float = 0.0
    _why: str = ""

    def missed(self, why: str, now: float) -> None:
        """An executor could not be started, or ended before the driver had it; `now` in seconds."""
        self._until = now + min(LONGEST_S, FIRST_S * 2.0 ** min(self._missed, 10))
        self._missed += 1
        self._why = why

    def release(self) -> None:
        """The driver has one."""
        self._missed, self._until, self._why = 0, 0.0, ""

    def is_free(self, now: float) -> bool:
        return now >= self._until

    @property
    def reason(self) -> str:
        """Why no more is to be hoped for; empty: it is."""
        return self._why if self._missed >= HOPELESS else ""
