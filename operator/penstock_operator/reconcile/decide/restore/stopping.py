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

A job that is CANCELLING or FAILING ends by itself in a moment; the engine gives its tasks a time and then ends them. What it cannot
end, such as a master that hangs in a call that never returns, is ended with its pods: the job goes on from the newest
complete checkpoint, and nothing that came after that was committed.

A master is SUSPENDED when another one has taken the job over from it. It ends by itself after a minute (exit code 75), its container
is started again, and takes over in turn if nobody stands in its way. If it does not end, its pod is deleted. The incarnation stays
the same, so that its folder on storage still decides between it and whoever fenced it off.

A job that is FINISHED with input left was stopped: by the operator, which knows of it, or by a person, which is the end of the job. But
one that was adopted (`adoption`) may be stopped by an operation that was lost with its status. That was asked for before, and the engine
is done with a savepoint long before `UNASKED_WITHIN`; such a job has not come to its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.api.types import format_duration
from penstock_operator.reconcile.decide.actions import RestartMaster
from penstock_operator.reconcile.decide.restore.committed_end import FRESH_BY_WISH, Lost, Unknown, incarnation_restore

if TYPE_CHECKING:
    from datetime import datetime

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status import Restore, Running
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision
    from penstock_operator.reconcile.observation import Observation


FENCED = (
    "another JobManager has taken the job over from its master, which ends and is started again. Only one may run under a job id: "
    "if this comes again and again, look for the other one"
)


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


UNASKED_WITHIN = timedelta(hours=1)
"""A stop that ends no later than this after a job was adopted may have been asked for before."""


def is_down(ctx: Context) -> bool:
    """Nothing runs that could be changed: the job has ended or does not come to its end, or its master is gone."""
    running, master, engine = ctx.status.running, ctx.seen.master, ctx.seen.engine
    if running is None or running.failed_at is not None or master is None or master.replicas == 0:
        return True
    return end_overdue(ctx) or suspended_overdue(ctx) or (engine.terminal and engine.job_id == running.job_id)


def stopped_unasked(ctx: Context) -> bool:
    """The job has been stopped by an operation that was lost with its status; what the spec wants is another matter."""
    running, engine = ctx.status.running, ctx.seen.engine
    if running is None or running.adopted_at is None or running.finished_at is not None:
        return False
    if engine.job_id != running.job_id or engine.state != "FINISHED" or engine.end_of_input:
        return False
    return (engine.checkpoints.latest_at or ctx.now) - running.adopted_at <= UNASKED_WITHIN


def end_deadline(ctx: Context) -> datetime:
    """When it is waited for no longer; only for a job that is ending."""
    status, running = ctx.status, ctx.status.running
    since = status.job_state_since if status.job_state == ctx.seen.engine.state else None
    begun = since or ctx.now
    if running is not None:
        begun = max(begun, running.started_at)
    return begun + ctx.settings.ending_timeout


def end_overdue(ctx: Context) -> bool:
    """The job that runs is ending, and has not ended in time."""
    running, engine = ctx.status.running, ctx.seen.engine
    ours = running is not None and engine.job_id == running.job_id
    return ours and engine.ending and ctx.now >= end_deadline(ctx)


def suspended_overdue(ctx: Context) -> bool:
    """The master that runs has been fenced off, and has not ended in time; a pod that was just made has its time, too."""
    status, running, engine = ctx.status, ctx.status.running, ctx.seen.engine
    if running is None or not engine.suspended or engine.job_id != running.job_id or status.job_state != engine.state:
        return False
    made = [p.created for p in ctx.seen.pods_of("master") if p.created is not None]
    since = max([status.job_state_since or ctx.now, running.started_at, *made])
    return ctx.now - since >= ctx.settings.suspended_timeout


def restart_master(ctx: Context) -> Decision:
    """End a master that was fenced off and does not end."""
    names = tuple(p.name for p in ctx.seen.pods_of("master") if not p.terminating)
    text = (
        f"the master has been SUSPENDED for {format_duration(ctx.settings.suspended_timeout)} and does not end; its pod is deleted, and "
        "another one goes on from the newest checkpoint"
    )
    return ctx.tell("MasterRestarted", text, warning=True, key=f"restarted/{'/'.join(names)}").done(
        RestartMaster(names)
    )
