"""How long things took, from one pass to the next: attempts at savepoints and rescales, and the time a job is down.

The status tells what is going on but not always since when: it is kept here, in memory. So what was under way when
another operator took over is left out of the durations, rather than guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import datetime

    from penstock_operator.api.status import FlinkJobStatus, Operation
    from penstock_operator.reconcile.job_loop import Transition

Outcome = Literal["Completed", "Failed"]

_FOLLOWS = {"Stop": "Seal", "Rescale": "RemoveWorkers"}
"""Steps in which the engine is asked for something long, and the step that follows when it is done."""
_REPLACING = frozenset({"Upgrade", "Redeploy", "Rollback"})
"""Operations that stop an incarnation to start another."""


@dataclass(frozen=True)
class Attempt:
    """One attempt that is over, at the savepoint of a stop or at a rescale."""

    operation: Operation
    outcome: Outcome
    seconds: float


class Attempts:
    """Measures attempts from when the engine is asked to when the operator knows how it went."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str], datetime] = {}

    def over(self, transition: Transition) -> Attempt | None:
        """The attempt that ended with this transition, if one did."""
        job, before, after = _job(transition), transition.before.operation, transition.after.operation
        was, now = _trigger(before), _trigger(after)
        if was == now:
            return None
        asked = self._asked.pop(job, None)
        if now is not None:
            self._asked[job] = transition.now
        if was is None or before is None or asked is None:
            return None
        same = after is not None and after.id == before.id
        done = same and after is not None and after.step == _FOLLOWS[before.step]
        return Attempt(before, "Completed" if done else "Failed", _seconds(asked, transition.now))

    def forget(self, namespace: str, name: str) -> None:
        """The FlinkJob is gone."""
        self._asked.pop((namespace, name), None)


@dataclass(frozen=True)
class Downtime:
    """From the stop of one incarnation to the first RUNNING of the next."""

    operation: Operation
    outcome: str
    seconds: float


@dataclass
class _Stop:
    since: datetime
    seconds: float | None = None
    """Until the new incarnation was seen RUNNING."""


class Downtimes:
    """Measures how long jobs are down while one incarnation replaces another.

    It is told when the operation ends, because only then its outcome is known. An operation that fails before its
    incarnation was ever RUNNING has not ended the downtime: that goes on into the rollback.
    """

    def __init__(self) -> None:
        self._stops: dict[tuple[str, str], _Stop] = {}

    def over(self, transition: Transition) -> Downtime | None:
        """The downtime whose operation ended with this transition, if one did."""
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
        """The FlinkJob is gone."""
        self._stops.pop((namespace, name), None)


def _job(transition: Transition) -> tuple[str, str]:
    return transition.namespace, transition.name


def _seconds(start: datetime, end: datetime) -> float:
    return max((end - start).total_seconds(), 0.0)


def _trigger(op: Operation | None) -> str | None:
    """Id of the attempt that is under way."""
    return op.trigger_id if op is not None and op.step in _FOLLOWS else None


def _runs(transition: Transition) -> bool:
    """The master of the new incarnation says RUNNING: the status may still have the word of the old one."""
    op, engine = transition.before.operation, transition.seen.engine
    return op is not None and op.step == "Watch" and engine.running and engine.job_id == op.job_id


def _stops_now(before: Operation | None, after: Operation | None) -> bool:
    if after is None or after.step != "Teardown" or after.kind not in _REPLACING:
        return False
    return before is None or before.id != after.id or before.step != "Teardown"


def _stopped_at(transition: Transition) -> datetime:
    """A job that stops with a savepoint ends with it, however long it takes to verify that."""
    status: FlinkJobStatus = transition.after
    made, op = status.last_savepoint, status.operation
    ours = made is not None and op is not None and op.restore is not None and op.restore.path == made.path
    if ours and made is not None and made.time is not None:
        return min(made.time, transition.now)
    return transition.now
