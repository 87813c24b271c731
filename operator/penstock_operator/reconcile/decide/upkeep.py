"""Housekeeping of a job while no operation is in progress, or while an operation waits. Pure functions. Each decision
does at most one of these tasks:

- repair objects
- add and remove workers for the autoscaler
- create snapshots by nonce and on a schedule
- apply the retention
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.api.types import format_duration
from penstock_operator.errors import Unavailable
from penstock_operator.reconcile.decide.actions import (
    ApplyChildren,
    ApplyPods,
    DeleteCheck,
    DeleteJob,
    DisposeJobStorage,
    PruneRevisions,
    ScaleDown,
)
from penstock_operator.reconcile.decide.autoscaling import adjust_workers, configure_autoscaler
from penstock_operator.reconcile.decide.health.recovery import failed_master_is_gone, is_permanently_failed
from penstock_operator.reconcile.decide.history import history_hint
from penstock_operator.reconcile.decide.refusals import REFUSALS, UNREADABLE, explain
from penstock_operator.reconcile.decide.restore.stopping import (
    restart_master,
    stopped_without_request,
    suspended_overdue,
)
from penstock_operator.reconcile.decide.savepoints.retention import protected_paths
from penstock_operator.reconcile.decide.savepoints.schedule import keep_up
from penstock_operator.reconcile.observation import UNREAD

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status.snapshots import Superseded
    from penstock_operator.reconcile.decide.actions import Action
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision
    from penstock_operator.reconcile.observation import ActionResult, Repair, Repaired
    from penstock_operator.resources.incarnation import Incarnation

REVISIONS_KEPT = 10
SWEEP_ATTEMPTS = 5
SWEEP_PAUSE = timedelta(minutes=10)


def upkeep(ctx: Context) -> Decision | None:
    """Return the most urgent piece of housekeeping, or None."""
    reported = _report_refusal(ctx)
    return _most_urgent(reported) or (None if reported is ctx else reported.done(after=ctx.settings.backoff_first))


def _most_urgent(ctx: Context) -> Decision | None:
    return _keep_pods(ctx) or _sweep(ctx) or _revisions(ctx) or _expire(ctx)


def _keep_pods(ctx: Context) -> Decision | None:
    """Return the most urgent piece of housekeeping for the pods of the running incarnation, or None."""
    return (
        _remove_failed_pods(ctx)
        or _record_stability(ctx)
        or _restart_suspended_master(ctx)
        or _repair(ctx)
        or configure_autoscaler(ctx)
        or adjust_workers(ctx)
        or keep_up(ctx)
    )


def keep_running(ctx: Context) -> Decision | None:
    """Return the most urgent piece of housekeeping for the running job while an operation waits, or None."""
    running = ctx.status.running
    if running is None or running.finished_at is not None:
        return None
    if ctx.op.step == "Watch":  # the step Watch evaluates the incarnation itself
        return _repair(ctx) or keep_up(ctx)
    return _keep_pods(ctx)


def _report_refusal(ctx: Context) -> Context:
    """Record an error if the API server refuses a repair, and remove the error when nothing needs a repair. Other
    housekeeping continues.
    """
    failure, error, seen = ctx.failed_action("ApplyPods", "ApplyChildren"), ctx.status.error, ctx.seen
    if failure is not None and failure.code == Unavailable.code and UNREAD in seen.flaws.get("children", ""):
        failure = replace(failure, code=UNREADABLE)
    if failure is not None and failure.code in REFUSALS:
        text = explain(failure)
        if error is not None and (error.reason, error.message) == (failure.code, ctx.clip(text)):
            return ctx
        return ctx.failed(failure.code, text).with_event(failure.code, text, warning=True)
    wrong = seen.flaws or seen.master is None
    if error is not None and error.reason in REFUSALS and not wrong and failure is None:
        return ctx.with_status(error=None)
    return ctx


def stray_check(ctx: Context) -> Action | None:
    """Return an action that deletes the check pod if the current operation does not use it."""
    pod, op = ctx.seen.check, ctx.status.operation
    if pod is None or (op is not None and op.step == "Check" and pod.operation == op.id):
        return None
    return DeleteCheck(pod.name)


def _expire(ctx: Context) -> Decision | None:
    """Delete a FlinkJob after its TTL if the job has read all of its input, and so has committed everything.

    Keep a job that needs a user's action: a user has stopped the job or wants to suspend it, or the last edit was
    rejected.
    """
    running, spec = ctx.status.running, ctx.spec
    if running is None or running.finished_at is None or spec is None or ctx.seen.replicas > 0:
        return None
    if not running.end_of_input or ctx.is_rejected or spec.job.state == "suspended":
        return None
    ttl = spec.deletion.ttl_after_finished
    if ttl is None or ctx.now - running.finished_at < ttl or ctx.failed_action("DeleteJob") is not None:
        return None
    text = f"the job ended {format_duration(ttl)} ago (deletion.ttlAfterFinished); the FlinkJob is deleted"
    return ctx.with_event("Expired", text).done(DeleteJob())


def _remove_failed_pods(ctx: Context) -> Decision | None:
    """Remove the pods of a permanently failed job whose master is gone or runs the job again. The engine keeps no record
    of a failure, so a restarted master runs the job again.
    """
    if not is_permanently_failed(ctx) or not failed_master_is_gone(ctx) or ctx.seen.replicas == 0:
        return None
    if ctx.failed_action("ScaleDown") is not None:
        return None
    text = "the job must stay Failed, but its master has ended or runs it again; the pods are removed"
    return ctx.with_event("PodsRemoved", text).done(ScaleDown())


def _record_stability(ctx: Context) -> Decision | None:
    """Record that the incarnation has become stable or has ended, if an edit interrupted the step that watched it."""
    running, engine = ctx.status.running, ctx.seen.engine
    if running is None or engine.job_id != running.job_id:
        return None
    if engine.state == "FINISHED" and running.finished_at is None and not stopped_without_request(ctx):
        finished = {"finished_at": ctx.now, "stable": True, "end_of_input": engine.end_of_input}
        ended = running.model_copy(update=finished)
        reason = "it has read all input" if engine.end_of_input else "it was stopped, or its engine gave no reason"
        ctx = ctx.with_event("Finished", f"the job is FINISHED: {reason}; its pods are removed{history_hint(ctx)}")
        return ctx.with_status(running=ended, stable_revision=running.revision).done()
    if engine.running and engine.checkpoints.completed > 0 and not running.stable:
        proved = running.model_copy(update={"stable": True, "had_checkpoint": True})
        return ctx.with_status(running=proved, stable_revision=running.revision).done()
    return None


def _restart_suspended_master(ctx: Context) -> Decision | None:
    if not suspended_overdue(ctx) or ctx.failed_action("RestartMaster") is not None:
        return None
    return restart_master(ctx)


def _repair(ctx: Context) -> Decision | None:
    running, seen = ctx.status.running, ctx.seen
    if running is None or running.finished_at is not None:
        return ctx.done(ScaleDown()) if seen.replicas > 0 and ctx.failed_action("ScaleDown") is None else None
    if ctx.failed_action("ApplyPods", "ApplyChildren") is not None or (
        is_permanently_failed(ctx) and failed_master_is_gone(ctx)
    ):
        return None
    incarnation = ctx.running_incarnation
    desired = ctx.spec or ctx.effective_spec
    if incarnation is None or desired is None:
        return None
    for group in ("children", "worker", "master"):
        if group in seen.flaws and _is_due(ctx, seen.repairs.get(group)):
            return _apply_again(ctx, group, incarnation, desired)
    return None


def _is_due(ctx: Context, before: Repair | None) -> bool:
    """Return whether an object may be applied again. If the last apply had no effect, wait, because another client
    changes the object back.
    """
    return before is None or ctx.now >= before.at + ctx.settings.backoff(before.attempts)


def _apply_again(ctx: Context, group: Repaired, incarnation: Incarnation, desired: FlinkJobSpec) -> Decision:
    before, flaw = ctx.seen.repairs.get(group), ctx.seen.flaws[group]
    changed = flaw if group == "children" else f"the {group} Deployment ({flaw})"
    readable = UNREAD not in flaw
    if before is not None:
        text = (
            f"{changed}: an admission webhook or another controller reverts it each time the operator applies the object. The "
            f"operator applies it again at most every {ctx.settings.backoff_limit}"
        )
        ctx = ctx.with_event("RepairReverted", text, warning=True, key=f"{incarnation.job_id}/{group}/{flaw}")
    elif readable and group == "children" and ctx.seen.edited:
        ctx = ctx.with_event("Applied", f"{changed}: applied with the values of the changed spec")
    elif readable and not _is_refused(ctx):
        ctx = ctx.with_event("Repaired", f"{changed} was missing or changed; the operator applies it again")
    if group == "children":
        return ctx.done(ApplyChildren(incarnation, desired))
    count = ctx.running_workers(incarnation.parallelism)
    grows = ctx.status.operation is not None or ctx.is_autoscaled  # a rescale may be adding workers
    if grows and ctx.seen.worker is not None:
        count = max(count, ctx.seen.worker.replicas)
    return ctx.done(ApplyPods(incarnation, desired, count, roles=(group,)))


def _is_refused(ctx: Context) -> bool:
    return ctx.status.error is not None and ctx.status.error.reason in REFUSALS


def _sweep(ctx: Context) -> Decision | None:
    """Delete the checkpoints of former incarnations. Before that, the running incarnation must be stable and have
    checkpoints, and no rollback may need the former checkpoints.
    """
    running, waiting = ctx.status.running, ctx.status.superseded
    spec = ctx.effective_spec
    if running is None or not (running.stable and running.had_checkpoint) or not waiting or spec is None:
        return None
    first, last = waiting[0], ctx.seen.last
    if last is not None and last.action == "DisposeJobStorage":
        return _swept(ctx, first, last)
    protected = protected_paths(ctx.status, spec.job.initial_savepoint_path)
    folder = f"{spec.storage.checkpoints}/{first.job_id}/"
    if first.job_id == running.job_id or any(path.startswith(folder) for path in protected):
        return None
    if first.retry_at is not None and ctx.now < first.retry_at:
        return None
    return ctx.done(DisposeJobStorage(first.job_id, first.revision))


def _swept(ctx: Context, first: Superseded, result: ActionResult) -> Decision:
    rest = ctx.status.superseded[1:]
    if result.ok:
        return ctx.with_status(superseded=rest).done(after=ctx.settings.progress)
    failures = first.failures + 1
    if failures >= SWEEP_ATTEMPTS:
        text = f"checkpoints of the former incarnation {first.job_id} could not be removed: {result.message}"
        return (
            ctx.with_event("CheckpointsKept", text, warning=True, key=first.job_id)
            .with_status(superseded=rest)
            .done(after=ctx.settings.progress)
        )
    pause = ctx.settings.backoff_first if failures == 1 else SWEEP_PAUSE * failures
    later = first.model_copy(update={"failures": failures, "retry_at": ctx.now + pause})
    return ctx.with_status(superseded=(*rest, later)).done(after=ctx.settings.progress)


def _revisions(ctx: Context) -> Decision | None:
    status = ctx.status
    used = {ctx.desired_revision, status.stable_revision}
    used |= {status.running.revision if status.running else None}
    used |= {former.revision for former in status.superseded}
    recent = [h.revision for h in status.history if h.revision]
    spare = [name for name in ctx.seen.revisions if name not in used and name not in recent]
    over = len(ctx.seen.revisions) - REVISIONS_KEPT
    if over <= 0 or not spare or ctx.failed_action("PruneRevisions") is not None:
        return None
    return ctx.done(PruneRevisions(tuple(sorted(spare)[:over])))
