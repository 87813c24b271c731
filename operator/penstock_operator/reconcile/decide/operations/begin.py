"""The choice of the operation to start if none is in progress. Pure functions. The first row that matches applies:

    nothing has ever run    state running                       Deploy
    suspended               redeploy nonce changed              Redeploy
                            state running                       Resume
    running (or should be)  state suspended                     Suspend
                            redeploy nonce changed              Redeploy
                            spec has another revision           Upgrade
                            engine has given up the job         Recover, after an increasing pause, unless the
                                                                job must stay Failed (`health.recovery`)
                            CANCELLING or FAILING for too long  Recover
                            adopted, and stopped by an          Recover (`restore.stopping`)
                            operation whose record was
                            lost with the former status
                            health rule is broken, and          Recover, after an increasing pause
                            health.restart is set               (`health.rules`), whatever `health.recovery`
                                                                decides about failed jobs
                            master's Deployment is gone         Recover, same incarnation, from its newest checkpoint
                            spec has another parallelism        Rescale
    finished by itself      spec has another revision           Upgrade

A rejected spec (one that was tried and given up) starts only a Suspend until it changes. The running job is still
recovered and rescaled. An invalid spec starts nothing, and
the running job is only recovered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.api.status.snapshots import Restore
from penstock_operator.reconcile.decide.health.causes import cause
from penstock_operator.reconcile.decide.health.recovery import GIVEN_UP, is_permanently_failed, why_not_recovered
from penstock_operator.reconcile.decide.health.rules import restart_due, with_pod_restart
from penstock_operator.reconcile.decide.operations.worker_memory import with_memory
from penstock_operator.reconcile.decide.restore.committed_end import (
    FRESH_BY_WISH,
    Lost,
    Unknown,
    from_savepoint,
    incarnation_restore,
)
from penstock_operator.reconcile.decide.restore.predecessor import source_of
from penstock_operator.reconcile.decide.restore.stopping import end_overdue, is_down, stopped_without_request
from penstock_operator.reconcile.decide.spec_diff import Effect, diff

if TYPE_CHECKING:
    from datetime import datetime

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status.incarnation import Running
    from penstock_operator.reconcile.decide.context import Context


def next_operation(ctx: Context) -> Context | None:
    """Return the context with a new operation, or None if no operation is necessary."""
    running = ctx.status.running
    if running is None:
        started = _from_nothing(ctx)
    elif running.finished_at is not None:
        started = _after_finish(ctx, running)
    else:
        started = _from_spec(ctx, running) or _recover(ctx, running) or _rescale(ctx, running)
    return None if started is None else with_memory(started)


def unused_parallelism(ctx: Context) -> str:
    """Return the reason why a new parallelism of a finished job has no effect, or an empty string."""
    spec, running = ctx.spec, ctx.status.running
    if spec is None or running is None or running.finished_at is None:
        return ""
    wanted = min(spec.job.parallelism, spec.job.max_parallelism)
    if wanted == running.parallelism or spec.autoscaling.sets_parallelism:
        return ""
    return (
        f"job.parallelism is {wanted} now, but the job has finished, so nothing is rescaled. To run it again with this "
        "parallelism, change job.restartNonce"
    )


def redeploy_wanted(ctx: Context) -> bool:
    """Return whether the redeploy nonce has changed since it was last processed."""
    if ctx.spec is None:
        return False
    nonce = ctx.spec.job.savepoint_redeploy_nonce
    return nonce is not None and nonce != ctx.status.nonces.savepoint_redeploy


def changes(ctx: Context, running: Running) -> str:
    """Describe the differences between the running revision and the spec, for users."""
    before = ctx.revision_spec(running.revision)
    if before is None or ctx.spec is None:
        return "the spec has changed"
    found = [str(c) for c in diff(before, ctx.spec) if c.effect >= Effect.RESTART]
    return "; ".join(found[:5]) or "the spec has changed"


def _from_nothing(ctx: Context) -> Context | None:
    spec, status = ctx.spec, ctx.status
    if spec is None or spec.job.state == "suspended" or ctx.is_rejected:
        return None
    target = ctx.desired_revision
    if status.next_restore is None:
        restore = _initial(spec)
        source = source_of(spec)
        return ctx.begin("Deploy", "first deployment", target_revision=target, restore=restore, source=source)
    if redeploy_wanted(ctx):
        return _redeploy(ctx, spec, fallback=status.next_restore)
    restore = FRESH_BY_WISH if spec.job.upgrade_mode == "stateless" else status.next_restore
    fallback = status.stable_revision if status.stable_revision != target else None
    return ctx.begin(
        "Resume",
        f"resuming from {restore.path or 'empty state'}",
        target_revision=target,
        restore=restore,
        fallback_revision=fallback,
        fallback_restore=restore if fallback else None,
    )


def _initial(spec: FlinkJobSpec) -> Restore:
    path = spec.job.initial_savepoint_path
    if path is None:
        return Restore(kind="Fresh", reason="first deployment")
    return from_savepoint(path, "job.initialSavepointPath, first deployment")


def _redeploy(ctx: Context, spec: FlinkJobSpec, *, fallback: Restore | None = None) -> Context:
    path = spec.job.initial_savepoint_path or ""
    running = ctx.status.running
    return ctx.begin(
        "Redeploy",
        f"job.savepointRedeployNonce changed; starting again from {path}",
        target_revision=ctx.desired_revision,
        restore=from_savepoint(path, f"redeploy nonce {spec.job.savepoint_redeploy_nonce}"),
        fallback_revision=ctx.status.stable_revision,
        fallback_parallelism=running.parallelism if running else None,
        fallback_restore=fallback,
    )


def _from_spec(ctx: Context, running: Running) -> Context | None:
    spec = ctx.spec
    if spec is None:
        return None
    if spec.job.state == "suspended":
        return ctx.begin("Suspend", "job.state is suspended", target_revision=running.revision)
    if ctx.is_rejected:
        return None
    if redeploy_wanted(ctx):
        return _redeploy(ctx, spec)
    if ctx.desired_revision != running.revision:
        return _upgrade(ctx, running)
    return None


def _upgrade(ctx: Context, running: Running) -> Context:
    stable = ctx.status.stable_revision
    return ctx.begin(
        "Upgrade",
        changes(ctx, running),
        target_revision=ctx.desired_revision,
        fallback_revision=stable if stable != ctx.desired_revision else None,
        fallback_parallelism=running.parallelism,
    )


def _after_finish(ctx: Context, running: Running) -> Context | None:
    if ctx.spec is None or ctx.spec.job.state == "suspended" or ctx.is_rejected:
        return None
    if redeploy_wanted(ctx):
        return _redeploy(ctx, ctx.spec)
    return _upgrade(ctx, running) if ctx.desired_revision != running.revision else None


def recovery(ctx: Context) -> Context | None:
    """Return the context with the recovery of the running job, or None if the job needs none now."""
    running = ctx.status.running
    return None if running is None or running.finished_at is not None else _recover(ctx, running)


def _recover(ctx: Context, running: Running) -> Context | None:
    spec, seen = ctx.effective_spec, ctx.seen
    if spec is None:
        return None
    gone = seen.master is None or seen.master.replicas == 0
    if running.failed_at is not None:
        seen_so = gone or (seen.engine.job_id == running.job_id and seen.engine.state in GIVEN_UP)
        return _recover_failed(ctx, running, running.failed_at) if seen_so and not is_permanently_failed(ctx) else None
    if gone:
        return _recover_missing(ctx, running)
    if stopped_without_request(ctx):
        reason = "an operation stopped the job, but its record was lost with the status; the job is started again"
        return _recover_from_newest(ctx, running, reason)
    if seen.engine.ending:
        if not end_overdue(ctx) or why_not_recovered(ctx, running) is not None:
            return None
        reason = f"the job has been {seen.engine.state} for {ctx.settings.ending_timeout} and does not end"
        return _recover_from_newest(ctx, _counted(running), reason)
    if restart_due(ctx) and ctx.status.health is not None:
        reason = f"health.restart, for {ctx.status.health.broken}: {ctx.status.health.message}"
        return _recover_from_newest(with_pod_restart(ctx), running, reason)
    return None


def _recover_missing(ctx: Context, running: Running) -> Context | None:
    point = incarnation_restore(running, ctx.seen.storage)
    if isinstance(point, Unknown | Lost):
        return None
    newest = ctx.seen.storage.newest
    # `Latest` needs a checkpoint of this incarnation. Without one, the master starts from the incarnation's first state.
    if newest is not None and point.path == newest.path:
        point = point.model_copy(update={"kind": "Latest"})
    reason = "the master's Deployment does not exist; it is created again from the newest checkpoint"
    return ctx.begin(
        "Recover", reason, step="Start", target_revision=running.revision, restore=point, job_id=running.job_id
    )


def _recover_failed(ctx: Context, running: Running, since: datetime) -> Context | None:
    if ctx.now - since < ctx.settings.backoff(running.failures + 1):
        return None
    failure = ctx.seen.engine.exception or running.failure
    reason = f"the engine gave up the job: {failure}{'; ' + cause(ctx) if cause(ctx) else ''}"
    return _recover_from_newest(ctx, _counted(running), reason)


def _counted(running: Running) -> Running:
    """Return the incarnation with its number of failures increased by one."""
    return running.model_copy(update={"failures": running.failures + 1})


def _recover_from_newest(ctx: Context, running: Running, reason: str) -> Context | None:
    point = incarnation_restore(running, ctx.seen.storage)
    if isinstance(point, Unknown | Lost):
        return None
    ctx = ctx.with_status(running=running)
    return ctx.begin("Recover", reason, target_revision=running.revision, restore=point, take_newest=True)


def _rescale(ctx: Context, running: Running) -> Context | None:
    spec, seen = ctx.spec, ctx.seen
    if spec is None or seen.worker is None or seen.worker.deleting or is_down(ctx) or ctx.is_autoscaled:
        return None
    if seen.engine.autoscaler is not None and seen.engine.autoscaler.mode == "active":
        return None  # the engine does not know yet that the spec sets the parallelism
    base = ctx.revision_spec(running.revision)
    target = min(spec.job.parallelism, base.job.max_parallelism if base else spec.job.parallelism)
    if target != running.parallelism:
        reason = f"job.parallelism: {running.parallelism} → {target}"
        return ctx.begin("Rescale", reason, target_revision=running.revision, target_parallelism=target)
    if seen.worker.replicas != ctx.running_workers(target):
        reason = f"workers: {seen.worker.replicas} → {ctx.running_workers(target)}"
        return ctx.begin("Rescale", reason, target_revision=running.revision, target_parallelism=target)
    return None
