"""The operator's clock. Deadlines in a status are wall-clock times. A jump of the wall clock must not make them expire.

Two cases need different remedies:

- The wall clock jumps while the operator runs. `SteadyClock` follows the monotonic clock and approaches the wall clock slowly.
- An operator starts on a node with another time, or after a long pause. `taken_over` compares the stored times with the
  clock. If a deadline passed long ago, no process has watched it, so the step gets its whole time again.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
    from penstock_operator.api.status.operation import Operation
    from penstock_operator.api.status.snapshots import RequestedSavepoint, Superseded

Waiting = TypeVar("Waiting", "RequestedSavepoint", "Superseded")

APPROACH = 0.1
"""Seconds per second by which the clock approaches the wall clock. So a wait is at most 10% too short or too long."""
TOLERANCE = timedelta(seconds=10)
"""How far a stored time may be in the future. The clocks of two nodes may differ by this much."""
UNWATCHED = timedelta(minutes=30)
"""Age after which a step without a deadline starts again in a new process."""


class SteadyClock:
    """A clock in whole seconds that never jumps and never goes back."""

    def __init__(
        self, wall: Callable[[], datetime] = lambda: datetime.now(UTC), monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._now, self._read = wall(), monotonic()

    def __call__(self) -> datetime:
        """Return the current time."""
        read = self._monotonic()
        elapsed = timedelta(seconds=read - self._read)
        straight, most = self._now + elapsed, elapsed * APPROACH
        self._now, self._read = straight + max(-most, min(most, self._wall() - straight)), read
        return self._now.replace(microsecond=0)


def taken_over(status: FlinkJobStatus, now: datetime, longest_pause: timedelta) -> FlinkJobStatus:
    """Return the status for the first pass of a process. Times in the future become `now`. A step that no process has
    watched starts its time again.
    """
    latest = now + longest_pause + TOLERANCE
    operation, health, running = status.operation, status.health, status.running
    updates = {
        "requested_savepoints": tuple(_retried(entry, now, latest) for entry in status.requested_savepoints),
        "superseded": tuple(_retried(former, now, latest) for former in status.superseded),
        "phase_since": _past(status.phase_since, now),
        "job_state_since": _past(status.job_state_since, now),
        "operation": operation and _watched_again(operation, now, latest),
        "health": health
        and health.model_copy(
            update={
                "since": _past(health.since, now),
                "restarted_at": _past(health.restarted_at, now),
                "restarts_at": tuple(_past(at, now) for at in health.restarts_at),
            }
        ),
        "running": running
        and running.model_copy(
            update={
                "started_at": _past(running.started_at, now),
                "finished_at": _past(running.finished_at, now),
                "failed_at": _past(running.failed_at, now),
            }
        ),
    }
    return status.model_copy(update=updates)


def _past(at: datetime | None, now: datetime) -> datetime | None:
    return now if at is not None and at > now + TOLERANCE else at


def _retried(waiting: Waiting, now: datetime, latest: datetime) -> Waiting:
    late = waiting.retry_at is not None and waiting.retry_at > latest
    return waiting.model_copy(update={"retry_at": now}) if late else waiting


def _watched_again(op: Operation, now: datetime, latest: datetime) -> Operation:
    """Restart the time of the step if its start is in the future, or if no process has watched its deadline.

    No process has watched the deadline if the step began more than twice its allowed time ago. The allowed time is the
    time from the start to the deadline. A step without a deadline counts as not watched after `UNWATCHED`.
    """
    start, deadline = op.step_since, op.deadline
    length = deadline - start if deadline is not None else timedelta(0)
    early = start > now + TOLERANCE
    late = now - start > (2 * length if deadline is not None else UNWATCHED)
    updates: dict[str, Any] = {"started_at": _past(op.started_at, now)}
    if early or late:
        updates |= {"step_since": now, "deadline": now + length if deadline is not None else None}
    if op.retry_at is not None and (early or op.retry_at > latest):
        updates["retry_at"] = now
    return op.model_copy(update=updates)
