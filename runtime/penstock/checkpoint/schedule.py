"""When the next periodic checkpoint is due (pure). Times in ms of the coordinator's clock."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Schedule:
    """Interval counted from trigger to trigger, pause from the end of the last checkpoint to the next trigger.

    A checkpoint that could not start in time (one is in progress, or the pause is not over) starts as soon as it can, and
    the interval counts from there: checkpoints do not pile up. `interval_ms` None: no periodic checkpoints.

    >>> schedule = Schedule(interval_ms=1000, min_pause_ms=300, last_trigger=0)
    >>> schedule.due_at()
    1000
    >>> schedule.triggered(1000).ended(1900).due_at()
    2200
    """

    interval_ms: int | None
    min_pause_ms: int = 0
    last_trigger: int = 0
    last_end: int | None = None
    is_urgent: bool = False

    def due_at(self) -> int | None:
        """None: never."""
        if self.is_urgent:
            return self.last_trigger
        if self.interval_ms is None:
            return None
        at = self.last_trigger + self.interval_ms
        return at if self.last_end is None else max(at, self.last_end + self.min_pause_ms)

    def is_due(self, now: int) -> bool:
        at = self.due_at()
        return at is not None and now >= at

    def triggered(self, now: int) -> Schedule:
        return replace(self, last_trigger=now, is_urgent=False)

    def ended(self, now: int) -> Schedule:
        return replace(self, last_end=now)

    def urgent(self) -> Schedule:
        """The next one is due at once."""
        return replace(self, is_urgent=True)
