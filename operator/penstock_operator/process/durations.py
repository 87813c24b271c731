"""Durations that span several passes: attempts at savepoints and rescales, and the downtime of jobs.

The status does not always contain the start time, so this module keeps it in memory. Actions that were in progress
when another operator took over are not measured, because their start time is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import datetime

    from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
    from penstock_operator.api.status.operation import Operation
    from penstock_operator.reconcile.job_loop import Transition

Outcome = Literal["Completed", "Failed"]

_FOLLOWS = {"Stop": "Seal", "Rescale": "RemoveWorkers"}
"""Steps in which the engine executes a long action, each with the step that follows if the action succeeds."""
_REPLACING = frozenset({"Upgrade", "Redeploy", "Rollback"})
"""Operations that replace an incarnation by another incarnation."""


@dataclass(frozen=True)
class Attempt:
    """A finished attempt at the savepoint of a stop, or at a rescale."""

    operation: Operation
    outcome: Outcome
    seconds: float


class Attempts:
    """Measurement of attempts, from the request to the engine until the operator knows the outcome."""

    def __init__(self) -> None:
        self._requested_at: dict[tuple[str, str], datetime] = {}

    def ended(self, transition: Transition) -> Attempt | None:
        """Return the attempt that ended with this transition, or None."""
        job, before, after = _job(transition), transition.before.operation, transition.after.operation
        was, now = _trigger(before), _trigger(after)
        if was == now:
            return None
        requested_at = self._requested_at.pop(job, None)
        if now is not None:
            self._requested_at[job] = transition.now
        if was is None or before is None or requested_at is None:
            return None
        same = after is not None and after.id == before.id
        done = same and after is not None and after.step == _FOLLOWS[before.step]
        return Attempt(before, "Completed" if done else "Failed", _seconds(requested_at, transition.now))

    def forget(self, namespace: str, name: str) -> None:
        """Drop the data of a FlinkJob that no longer exists."""
        self._requested_at.pop((namespace, name), None)


@dataclass(frozen=True)
class Downtime:
    """The time from the stop of one incarnation until the next incarnation is RUNNING for the first time."""

    operation: Operation
    outcome: str
    seconds: float


@dataclass
class _Stop:
    since: datetime
    seconds: float | None = None
    """Seconds until the new incarnation was RUNNING."""


class Downtimes:
    """Measurement of the downtime while one incarnation replaces another.

    A downtime is reported when the operation ends, because the outcome of the operation is not known earlier. If an
    operation fails before its incarnation was RUNNING, the downtime continues during the rollback.
    """

    def __init__(self) -> None:
        self._stops: dict[tuple[str, str], _Stop] = {}

    def ended(self, transition: Transition) -> Downtime | None:
        """Return the downtime of the operation that ended with this transition, or None."""
        job, before, after = _job(transition), transition.before.operation, transition.after.operation
        stop = self._stops.get(job)
        if stop is not None and stop.seconds is None and _runs(transition):
            stop.seconds = _seconds(stop.since, transition.now)
        found = None
        if before is not None and (after is None or after.id != before.id):
            if stop is not None and stop.seconds is not None:
                found = Downtime(before, transition.after.history[0].outcome, stop.seconds)
            if after is None or found is not None:
                self._stops.pop(job, None)
        if _stops_now(before, after):
            self._stops.setdefault(job, _Stop(_stopped_at(transition)))
        return found

    def forget(self, namespace: str, name: str) -> None:
        """Drop the data of a FlinkJob that no longer exists."""
        self._stops.pop((namespace, name), None)


def _job(transition: Transition) -> tuple[str, str]:
    return transition.namespace, transition.name


def _seconds(start: datetime, end: datetime) -> float:
    return max((end - start).total_seconds(), 0.0)


def _trigger(op: Operation | None) -> str | None:
    """Return the id of the attempt in progress."""
    return op.trigger_id if op is not None and op.step in _FOLLOWS else None


def _runs(transition: Transition) -> bool:
    """Return whether the master of the new incarnation reports RUNNING. The status may still have the state of the
    former incarnation.
    """
    op, engine = transition.before.operation, transition.seen.engine
    return op is not None and op.step == "Watch" and engine.running and engine.job_id == op.job_id


def _stops_now(before: Operation | None, after: Operation | None) -> bool:
    if after is None or after.step != "Teardown" or after.kind not in _REPLACING:
        return False
    return before is None or before.id != after.id or before.step != "Teardown"


def _stopped_at(transition: Transition) -> datetime:
    """Return the time when the job stopped. A job that stops with a savepoint has stopped when the savepoint is
    complete, although the operator verifies the savepoint afterwards.
    """
    status: FlinkJobStatus = transition.after
    savepoint, op = status.last_savepoint, status.operation
    ours = savepoint is not None and op is not None and op.restore is not None and op.restore.path == savepoint.path
    if ours and savepoint is not None and savepoint.time is not None:
        return min(savepoint.time, transition.now)
    return transition.now
