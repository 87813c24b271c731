"""Deletion of a FlinkJob. It always ends, because every wait has a deadline. After a deadline, an event reports what is
left, and the deletion continues. No pause and no request lasts longer than the remaining time (`time_left`).

If the spec requests a savepoint, the operator waits until the job is RUNNING, and then takes the savepoint. A job that
restarts, or whose master does not respond, may be RUNNING again soon, so the operator waits until the timeout. A job
that has read all of its input needs no savepoint. If no savepoint could be made and verified, the checkpoints are kept,
whatever `deletion.storage` is, because they are the only copy of the state. `operation.saved` records whether the
checkpoints may be deleted.

The operator waits until the pods are gone, because they must not run next to a new FlinkJob of the same name. Then it
removes the finalizer, and Kubernetes deletes the owned objects.

The field `deletion` of the manifest applies even if another part of the manifest is not valid. The operator takes the
storage settings from the revisions that wrote the files. A FlinkJob may have been started from the checkpoints of an
earlier FlinkJob of the same name. If this FlinkJob has completed no newer state, these checkpoints are kept, because
they are the only state under this name.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.reconcile.decide.actions import DisposeJobStorage, FenceIncarnation, RemoveFinalizer
from penstock_operator.reconcile.decide.operations.stop import request_savepoint, seal, stop, teardown
from penstock_operator.reconcile.decide.refusals import explain
from penstock_operator.reconcile.decide.savepoints.requested import (
    has_complete_savepoint,
    pending,
    with_leftovers_event,
)
from penstock_operator.reconcile.decide.savepoints.retention import disposable
from penstock_operator.reconcile.decide.storage_settings import disposal_specs

if TYPE_CHECKING:
    from penstock_operator.api.status.snapshots import Superseded
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision
    from penstock_operator.reconcile.observation import ActionResult

RECORD_TIMEOUT = timedelta(seconds=30)
"""Time to wait for the FlinkSnapshot of a savepoint, even after the timeout of the deletion."""
DELETING = "deleting checkpoints"
NAMED = 3
"""Maximum number of folders that an event names."""


def time_left(ctx: Context) -> timedelta | None:
    """Return the time after which the current work of a deletion is given up. It is never negative. Return None if the
    FlinkJob is not being deleted.
    """
    op = ctx.status.operation
    if op is None or op.kind != "Delete":
        return None
    until = op.deadline if op.step == "Dispose" else None
    return max((until or op.started_at + ctx.deletion_policy.timeout) - ctx.now, timedelta(0))


def storage_timeout(ctx: Context) -> float | None:
    """Return how long to wait for a response, in seconds: the remaining time of the deletion, but at least 1 s."""
    remaining = time_left(ctx)
    return None if remaining is None else max(remaining.total_seconds(), 1.0)


def delete(ctx: Context) -> Decision:
    """Return the decision about a FlinkJob that is being deleted. The next pass comes before the remaining time is
    over.
    """
    decision, remaining = _delete(ctx), time_left(ctx)
    if decision.requeue is None or not remaining:
        return decision
    return replace(decision, requeue=min(decision.requeue, remaining))


def _delete(ctx: Context) -> Decision:
    op = ctx.op
    overdue = ctx.now - op.started_at >= ctx.deletion_policy.timeout
    if op.step in ("Stop", "Seal") and overdue:
        return _without_savepoint(
            ctx, f"the savepoint was not complete before the timeout of the deletion: {op.message}"
        )
    if op.step == "Stop" and op.trigger_id is None and (op.retry_at is None or ctx.now >= op.retry_at):
        return _take_savepoint(ctx)
    refused = ctx.failed_action("ScaleDown")
    fencing = _fence_in_session(ctx, refused) if op.step == "Teardown" and overdue else None
    if fencing is not None:
        return fencing
    if op.step == "Teardown" and overdue and (ctx.seen.replicas == 0 or refused is not None):
        if refused is not None:
            ctx = ctx.with_event("PodsAbandoned", _not_stopped(ctx, explain(refused)), warning=True)
        elif ctx.seen.left:
            ctx = ctx.with_event(
                "PodsAbandoned",
                f"{len(ctx.seen.left)} pods did not end before the timeout of the deletion, which continues",
                warning=True,
            )
        return ctx.advance()
    steps = {"Stop": stop, "Seal": seal, "Teardown": teardown}
    return steps.get(op.step, dispose)(ctx)


def _fence_in_session(ctx: Context, refused: ActionResult | None) -> Decision | None:
    """Fence a job that could not be cancelled in its session. Kubernetes cannot remove it with the FlinkJob, and it must not
    write next to a new FlinkJob of the same name. Return None if there is nothing to fence.
    """
    running, last = ctx.status.running, ctx.seen.last
    if not ctx.is_in_cluster or running is None or ctx.op.fenced:
        return None
    if last is not None and last.action == "FenceIncarnation":
        return ctx.with_op(fenced=True).done()
    return ctx.act(FenceIncarnation(running.job_id), "fencing off the job in its session") if refused else None


def _not_stopped(ctx: Context, reason: str) -> str:
    running = ctx.status.running
    if not ctx.is_in_cluster or running is None:
        return f"the pods could not be stopped: {reason}. Kubernetes removes them with the FlinkJob"
    return (
        f"the job {running.job_id} could not be cancelled in its session: {reason}. It is fenced off, so it can complete no "
        "checkpoint. Cancel it when the session responds"
    )


def is_saved(ctx: Context) -> bool:
    """Return whether the job can continue without its checkpoints: it has read all input, or has a savepoint or no state."""
    running, end = ctx.status.running, ctx.status.next_restore
    if running is not None and running.finished_at is not None and running.end_of_input:
        return True
    return end is None or end.kind in ("Savepoint", "Fresh")


def _take_savepoint(ctx: Context) -> Decision:
    """Request the savepoint as soon as the job is RUNNING. Skip it if the job has ended, or if no pod is left that
    could run the job.
    """
    engine = ctx.seen.engine
    if engine.running:
        return request_savepoint(ctx)
    state = engine.state if engine.reachable and engine.state else "not reachable"
    gone = ctx.seen.replicas == 0 and not ctx.seen.left
    if not engine.terminal and not gone:
        until = ctx.op.started_at + ctx.deletion_policy.timeout
        text = f"a savepoint needs a RUNNING job, this one is {state}; the operator waits until {until:%H:%M:%S} UTC"
        return ctx.pending(text)
    read_to_the_end = engine.state == "FINISHED" and engine.end_of_input
    if read_to_the_end or _is_stopped_with_savepoint(ctx):
        return ctx.advance("Teardown", saved=True)
    if engine.state == "FINISHED":
        return ctx.advance("Teardown")
    return _without_savepoint(
        ctx, f"{'no pod of the job exists' if gone else f'the job is {state}'}, so no savepoint can be taken"
    )


def _is_stopped_with_savepoint(ctx: Context) -> bool:
    """Return whether an earlier operation has stopped the running job with a verified savepoint."""
    running, last, end = ctx.status.running, ctx.status.last_savepoint, ctx.status.next_restore
    if running is None or last is None or end is None:
        return False
    return last.job_id == running.job_id and end.path == last.path


def _without_savepoint(ctx: Context, reason: str) -> Decision:
    text = f"{reason}; the deletion continues, and the operator keeps the checkpoints"
    return ctx.with_event("DeletedWithoutSavepoint", text, warning=True).advance("Teardown")


def dispose(ctx: Context) -> Decision:
    """Delete the checkpoints if the spec requests it. Then let the object be deleted in any case."""
    policy = ctx.deletion_policy
    if policy.storage != "Delete":
        return _remove_finalizer(ctx)
    if policy.savepoint and not ctx.op.saved:
        text = (
            "the operator keeps the checkpoints although deletion.storage is Delete: deletion.savepoint requires a savepoint, but no "
            "verified savepoint exists. The checkpoints are the only copy of the job's state"
        )
        return _remove_finalizer(ctx.with_event("StorageKept", text, warning=True))
    if ctx.op.deadline is None:
        ctx = _with_dispose_deadline(ctx)
    undeleted, failure = _undeleted(ctx)
    kept = tuple(former for former in ctx.status.superseded if former not in disposable(ctx.status))
    ctx = ctx.with_status(superseded=(*undeleted, *kept), running=None)
    if not undeleted:
        return _remove_finalizer(ctx)
    if ctx.past_deadline:
        reason = failure or ctx.op.message.removeprefix(DELETING).removeprefix(": ") or "the deletion took too long"
        ctx = ctx.with_event("StorageKept", f"{_folders(ctx, undeleted)} could not be deleted: {reason}", warning=True)
        return _remove_finalizer(ctx)
    if failure:
        untried = undeleted[0].failures == 0
        return ctx.wait(f"{DELETING}: {failure}", after=None if untried else ctx.settings.backoff_first)
    return ctx.act(DisposeJobStorage(undeleted[0].job_id, undeleted[0].revision), ctx.op.message or DELETING)


def _remove_finalizer(ctx: Context) -> Decision:
    """Remove the finalizer when each savepoint has a FlinkSnapshot, or after a timeout."""
    waiting = pending(ctx)
    if waiting and ctx.op.deadline is None:
        until = max(ctx.op.started_at + ctx.deletion_policy.timeout, ctx.now)
        longest = ctx.now + RECORD_TIMEOUT
        ctx = ctx.with_op(deadline=longest if has_complete_savepoint(ctx) else min(until, longest))
    if waiting and not ctx.past_deadline:
        return ctx.wait(waiting)
    return with_leftovers_event(ctx).act(RemoveFinalizer(), "removing the finalizer")


def _with_dispose_deadline(ctx: Context) -> Context:
    """Return the context with a deadline, and with new attempts for checkpoints that could not be deleted before."""
    ctx = ctx.retire()
    fresh = tuple(former.model_copy(update={"failures": 0, "retry_at": None}) for former in ctx.status.superseded)
    return ctx.with_status(superseded=fresh).with_op(deadline=ctx.now + ctx.settings.dispose_timeout)


def _undeleted(ctx: Context) -> tuple[tuple[Superseded, ...], str]:
    """Return the incarnations with remaining checkpoints in the order to try them, and the reason why the last
    attempt failed.

    An incarnation whose checkpoints could not be deleted moves to the end, because the next incarnation may be in a
    store that responds.
    """
    undeleted, last = disposable(ctx.status), ctx.seen.last
    if not undeleted or last is None or last.action != "DisposeJobStorage":
        return undeleted, ""
    if last.ok:
        return undeleted[1:], ""
    failed = undeleted[0].model_copy(update={"failures": undeleted[0].failures + 1})
    return tuple(sorted((*undeleted[1:], failed), key=lambda former: former.failures)), last.message or last.code


def _folders(ctx: Context, undeleted: tuple[Superseded, ...]) -> str:
    def folder(former: Superseded) -> str:
        specs = disposal_specs(ctx, former.revision)
        return f"{specs[0].storage.checkpoints}/{former.job_id}" if specs else f"the folder {former.job_id}"

    more = f" and {len(undeleted) - NAMED} more" if len(undeleted) > NAMED else ""
    return f"checkpoints in {', '.join(folder(former) for former in undeleted[:NAMED])}{more}"
