"""The way to stop a job, and the state for its successor. Pure functions. The first row that matches applies:

    state of the job                        mode        decision
    ──────────────────────────────────────  ──────────  ─────────────────────────────────────────────────────────────
    any                                     stateless   stop now; the successor starts empty, as the user requested
    ended (FINISHED, CANCELED, FAILED)      stateful    nothing to stop; use its newest complete checkpoint
    CANCELLING, FAILING                     stateful    wait, because the job ends soon
    the same, for too long                  stateful    stop the pods; use the newest complete checkpoint
    RUNNING                                 savepoint   stop with a savepoint
    RUNNING, no checkpoint completed yet    last-state  stop with a savepoint, because no last state exists
    RUNNING, newest checkpoint too old      last-state  stop with a savepoint
    RUNNING                                 last-state  check that a checkpoint is readable, stop, then use the newest
    not RUNNING, never had a pod running    stateful    nothing to lose: use the state that the job was to restore
    not RUNNING (restarting, unreachable)   savepoint   wait for RUNNING for some time, then the same as for last-state,
                                                        unless the user forbids that
    not RUNNING                             last-state  stop; use the newest complete checkpoint
    Deployment gone                         stateful    nothing to stop; use the newest complete checkpoint
    storage does not respond                stateful    wait, because unknown is not absent
    checkpoints lost                        stateful    blocked: a user decides

The mode last-state needs no engine, because checkpoints are read from storage. Other operators need more rows here,
for metadata in the cluster and for a job manager that must respond.

A job that is CANCELLING or FAILING usually ends soon. The engine gives its tasks some time, and then ends them. The
engine cannot end every job, for example if the master hangs in a call that never returns. The operator then deletes the
pods. The job continues from the newest complete checkpoint. No output after this checkpoint was committed.

A master is SUSPENDED when another master has taken over the job. The suspended master ends after a minute (exit code
75). Its container restarts, and the new master takes over again if no other master prevents it. If the master does not
end, its pod is deleted. The incarnation stays the same. So its folder in storage still decides between this master and
the other master.

A job that is FINISHED before the end of its input was stopped. Usually the operator has stopped the job and recorded
the stop, or a user has stopped the job for good. But an adopted job (`adoption`) may have been stopped by an operation
that was lost with the status. The stop was then requested before the adoption, and the engine completes a savepoint
well within `REQUEST_BEFORE_ADOPTION`. Such a job has not reached its end.
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
    from penstock_operator.api.status.incarnation import Running
    from penstock_operator.api.status.snapshots import Restore
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision
    from penstock_operator.reconcile.observation import Observation


FENCED = (
    "another JobManager has taken over the job from its master, which ends and starts again. Only one JobManager may run "
    "under a job id. If this repeats, find the other JobManager and stop it"
)


@dataclass(frozen=True)
class WithSavepoint:
    """Decision to request a stop with a savepoint from the engine."""


@dataclass(frozen=True)
class StopNow:
    """Decision to remove the pods. The successor is restored from `restore`.

    If `newest` is set, the restore point only proves that a successor can be restored. If a newer checkpoint completes
    before the pods are gone, the successor uses that checkpoint.
    """

    restore: Restore
    newest: bool = False


@dataclass(frozen=True)
class Wait:
    """Decision to wait."""

    message: str


@dataclass(frozen=True)
class Blocked:
    """Decision to wait for a user's action."""

    reason: str
    message: str


Stop = WithSavepoint | StopNow | Wait | Blocked


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
    """Return how to stop `running` so that a successor can continue.

    Args:
        waited: time since the first attempt.
        ends_by: time until which to wait for a job that is ending.
    """
    mode = spec.job.upgrade_mode
    engine = seen.engine
    if mode == "stateless":
        return StopNow(FRESH_BY_WISH)
    if engine.ending and now < ends_by:
        otherwise = "its pods are stopped and the newest checkpoint is used"
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
    return StopNow(point, newest=True)


def _not_running(
    spec: FlinkJobSpec, running: Running, seen: Observation, *, waited: timedelta, patience: timedelta
) -> Stop:
    masters = seen.pods_of("master")
    gone = seen.engine.terminal or seen.master is None or (seen.master.replicas == 0 and not masters)
    never_started = bool(masters) and not any(p.started for p in masters) and not running.may_have_checkpoint
    if not gone and not never_started and spec.job.upgrade_mode == "savepoint":
        state = seen.engine.state if seen.engine.reachable else "unreachable"
        if not spec.upgrade.checkpoint_fallback:
            return Wait(
                f"a savepoint needs a RUNNING job, this one is {state}; the operator waits for it, because upgrade.checkpointFallback is false"
            )
        if waited < patience:
            return Wait(
                f"a savepoint needs a RUNNING job, this one is {state}; otherwise the newest checkpoint is used soon"
            )
    return _newest(running, seen)


def _newest(running: Running, seen: Observation) -> Stop:
    point = incarnation_restore(running, seen.storage)
    if isinstance(point, Unknown):
        return Wait(point.message)
    if isinstance(point, Lost):
        return Blocked("StateLost", point.message)
    return StopNow(point, newest=True)


REQUEST_BEFORE_ADOPTION = timedelta(hours=1)
"""If a job stops at most this long after its adoption, the stop may have been requested before the adoption."""


def is_down(ctx: Context) -> bool:
    """Return whether nothing runs that could be changed: the job has ended, hangs at its end, or has no master."""
    running, master, engine = ctx.status.running, ctx.seen.master, ctx.seen.engine
    if running is None or running.failed_at is not None or master is None or master.replicas == 0:
        return True
    return end_overdue(ctx) or suspended_overdue(ctx) or (engine.terminal and engine.job_id == running.job_id)


def stopped_without_request(ctx: Context) -> bool:
    """Return whether the job was stopped by an operation that was lost with the status. The spec may request something
    else.
    """
    running, engine = ctx.status.running, ctx.seen.engine
    if running is None or running.adopted_at is None or running.finished_at is not None:
        return False
    if engine.job_id != running.job_id or engine.state != "FINISHED" or engine.end_of_input:
        return False
    ended = (ctx.status.job_state_since if ctx.status.job_state == engine.state else None) or ctx.now
    return min(engine.checkpoints.latest_at or ended, ended) - running.adopted_at <= REQUEST_BEFORE_ADOPTION


def end_deadline(ctx: Context) -> datetime:
    """Return the time until which to wait for a job that is ending."""
    status, running = ctx.status, ctx.status.running
    since = status.job_state_since if status.job_state == ctx.seen.engine.state else None
    started = since or ctx.now
    if running is not None:
        started = max(started, running.started_at)
    return started + ctx.settings.ending_timeout


def end_overdue(ctx: Context) -> bool:
    """Return whether the running job is ending and has not ended in time."""
    running, engine = ctx.status.running, ctx.seen.engine
    ours = running is not None and engine.job_id == running.job_id
    return ours and engine.ending and ctx.now >= end_deadline(ctx)


def suspended_overdue(ctx: Context) -> bool:
    """Return whether the running master was fenced and has not ended in time. A new pod gets the full time."""
    status, running, engine = ctx.status, ctx.status.running, ctx.seen.engine
    if running is None or not engine.suspended or engine.job_id != running.job_id or status.job_state != engine.state:
        return False
    creation_times = [p.created for p in ctx.seen.pods_of("master") if p.created is not None and p.created <= ctx.now]
    since = max([status.job_state_since or ctx.now, running.started_at, *creation_times])
    return ctx.now - since >= ctx.settings.suspended_timeout


def restart_master(ctx: Context) -> Decision:
    """Return the decision to delete a master that was fenced and does not end."""
    names = tuple(p.name for p in ctx.seen.pods_of("master") if not p.terminating)
    text = (
        f"the master has been SUSPENDED for {format_duration(ctx.settings.suspended_timeout)} and does not end; its pod is deleted, and "
        "another one continues from the newest checkpoint"
    )
    return ctx.with_event("MasterRestarted", text, warning=True, key=f"restarted/{'/'.join(names)}").done(
        RestartMaster(names)
    )
