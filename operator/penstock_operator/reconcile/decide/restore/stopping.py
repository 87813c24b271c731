"""How a job is stopped when it has to be, and what its successor is restored from. Pure; first match wins.

    job as observed                         mode        decision
    ──────────────────────────────────────  ──────────  ─────────────────────────────────────────────────────────────
    anything                                stateless   stop now; the successor starts empty, because the user said so
    ended (FINISHED, CANCELED, FAILED)      stateful    nothing to stop; its newest complete checkpoint
    CANCELLING, FAILING                     stateful    wait; it ends by itself in a moment
    the same, for too long                  stateful    stop the pods; the newest complete checkpoint
    RUNNING                                 savepoint   stop with a savepoint
    RUNNING, no checkpoint completed yet    last-state  stop with a savepoint: there is no last state
    RUNNING, newest checkpoint too old      last-state  stop with a savepoint
    RUNNING                                 last-state  prove that a checkpoint is readable, stop, then take the newest
    not RUNNING, never had a pod running    stateful    nothing to lose: what it was to be restored from itself
    not RUNNING (restarting, unreachable)   savepoint   wait for RUNNING for a while; then, unless the user forbade it, as
                                                        last-state
    not RUNNING                             last-state  stop; the newest complete checkpoint
    Deployment gone                         stateful    nothing to stop; the newest complete checkpoint
    storage does not answer                 stateful    wait: unknown is not absent
    checkpoints lost                        stateful    blocked: a person decides

Last state needs no engine: checkpoints are read from storage. What other operators need half a dozen rows for
(metadata in the cluster, a job manager that must answer) does not exist here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock_operator.reconcile.decide.restore.committed_end import FRESH_BY_WISH, Lost, Unknown, incarnation_restore

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status import Restore, Running
    from penstock_operator.reconcile.observation import Observation


@dataclass(frozen=True)
class WithSavepoint:
    """Ask the engine to stop with a savepoint."""


@dataclass(frozen=True)
class AtOnce:
    """Take the pods away; the successor is restored from `restore`.

    With `newest` the restore point is only the proof that there is a way back: a checkpoint that completes until the
    pods are gone is taken instead.
    """

    restore: Restore
    newest: bool = False


@dataclass(frozen=True)
class Wait:
    """Look again later."""

    message: str


@dataclass(frozen=True)
class Blocked:
    """It cannot go on without a person."""

    reason: str
    message: str


Stop = WithSavepoint | AtOnce | Wait | Blocked


def choose_stop(
    spec: FlinkJobSpec,
    running: Running,
    seen: Observation,
    *,
    now: datetime,
    waited: timedelta,
    patience: timedelta,
    ends_by: datetime,
) -> Stop:
    """How to stop `running` so that a successor can go on.

    `waited` is how long this has been tried; `ends_by` until when one that is ending is waited for.
    """
    mode = spec.job.upgrade_mode
    engine = seen.engine
    if mode == "stateless":
        return AtOnce(FRESH_BY_WISH)
    if engine.ending and now < ends_by:
        otherwise = "its pods are stopped and the newest checkpoint is taken"
        return Wait(f"the job is {engine.state}; unless it has ended by {ends_by:%H:%M:%S} UTC, {otherwise}")
    if engine.ending:
        return _newest(running, seen)
    if not engine.running:
        return _not_running(spec, running, seen, waited=waited, patience=patience)
    if mode == "savepoint":
        return WithSavepoint()
    return _last_state(spec, running, seen, now=now)


def _last_state(spec: FlinkJobSpec, running: Running, seen: Observation, *, now: datetime) -> Stop:
    point = incarnation_restore(running, seen.storage)
    if isinstance(point, Unknown):
        return Wait(point.message)
    if isinstance(point, Lost) or point.kind != "Checkpoint":
        return WithSavepoint()
    limit = spec.upgrade.max_checkpoint_age
    if limit is not None and (point.time is None or now - point.time > limit):
        return WithSavepoint()
    return AtOnce(point, newest=True)


def _not_running(
    spec: FlinkJobSpec, running: Running, seen: Observation, *, waited: timedelta, patience: timedelta
) -> Stop:
    masters = seen.pods_of("master")
    gone = seen.engine.terminal or seen.master is None or (seen.master.replicas == 0 and not masters)
    never_started = bool(masters) and not any(p.started for p in masters) and not running.had_checkpoint
    if not gone and not never_started and spec.job.upgrade_mode == "savepoint":
        state = seen.engine.state if seen.engine.reachable else "unreachable"
        if not spec.upgrade.checkpoint_fallback:
            return Wait(f"a savepoint needs a RUNNING job, this one is {state}; upgrade.checkpointFallback is false")
        if waited < patience:
            return Wait(
                f"a savepoint needs a RUNNING job, this one is {state}; the newest checkpoint is taken instead soon"
            )
    return _newest(running, seen)


def _newest(running: Running, seen: Observation) -> Stop:
    point = incarnation_restore(running, seen.storage)
    if isinstance(point, Unknown):
        return Wait(point.message)
    if isinstance(point, Lost):
        return Blocked("StateLost", point.message)
    return AtOnce(point, newest=True)
