"""The time of the next periodic checkpoint (pure). Times in ms of the coordinator's clock."""

from __future__ import annotations

from dataclasses import dataclass, replace

FIRST_BACKOFF_MS = 100
LONGEST_BACKOFF_MS = 10_000


@dataclass(frozen=True)
class Schedule:
    """The schedule of checkpoints. The interval is the time between two triggers. The pause is the time between the end
    of a checkpoint and the next trigger.

    A checkpoint is late if another one is in progress or the pause is not over. A late checkpoint starts as soon as
    possible, and the next interval starts with its trigger. So checkpoints do not pile up. If `interval_ms` is None,
    there are no periodic checkpoints.

    >>> schedule = Schedule(interval_ms=1000, min_pause_ms=300, last_trigger=0)
    >>> schedule.due_at()
    1000
    >>> schedule.triggered(1000).ended(1900).due_at()
    2200

    After a failure the next checkpoint waits for a pause that grows from `FIRST_BACKOFF_MS` to `LONGEST_BACKOFF_MS`.
    The pause is at least `min_pause_ms`. The pause also applies to the final checkpoint of a bounded job and to
    requested checkpoints. Only savepoints are tried immediately:

    >>> failed = Schedule(interval_ms=None).failed(5000)
    >>> failed.may_retry_at(), failed.failed(5100).may_retry_at(), failed.failed(5100).succeeded(6000).may_retry_at()
    (5100, 5300, 0)
    >>> Schedule(interval_ms=20).failed(5000).failed(5100).due_at()
    5300
    """

    interval_ms: int | None
    min_pause_ms: int = 0
    last_trigger: int = 0
    last_end: int | None = None
    is_urgent: bool = False
    failures: int = 0
    """Number of consecutive failures."""

    def due_at(self) -> int | None:
        """Return when the next periodic checkpoint is due; None means never."""
        if self.is_urgent:
            return self.last_trigger
        if self.interval_ms is None:
            return None
        at = self.last_trigger + self.interval_ms
        return at if self.last_end is None else max(at, self.last_end + self.min_pause_ms, self.may_retry_at())

    def is_due(self, now: int) -> bool:
        at = self.due_at()
        return at is not None and now >= at

    def triggered(self, now: int) -> Schedule:
        return replace(self, last_trigger=now, is_urgent=False)

    def ended(self, now: int) -> Schedule:
        return replace(self, last_end=now)

    def succeeded(self, now: int) -> Schedule:
        return replace(self, last_end=now, failures=0)

    def failed(self, now: int) -> Schedule:
        return replace(self, last_end=now, failures=self.failures + 1)

    def may_retry_at(self) -> int:
        """Return the earliest time of the next checkpoint after the failures so far."""
        if not self.failures or self.last_end is None:
            return 0
        backoff = min(FIRST_BACKOFF_MS << min(self.failures - 1, 30), LONGEST_BACKOFF_MS)
        return self.last_end + max(backoff, self.min_pause_ms)

    def urgent(self) -> Schedule:
        """Return a schedule whose next checkpoint is due immediately."""
        return replace(self, is_urgent=True)
