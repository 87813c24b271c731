"""The stop of a job without loss of its position: savepoint, verification of the savepoint, removal of the pods.

The folder of the savepoint and the id of the request are written to the status before the request to the engine. So
after a crash, storage shows whether the savepoint was taken, and a repeated request is harmless. The result in
storage takes precedence over any response. A request may fail although its savepoint is complete, and the engine that
executed it may no longer exist.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.api.status.snapshots import Checkpoint, Restore
from penstock_operator.reconcile.decide.actions import FenceIncarnation, ForceDelete, ScaleDown, StopWithSavepoint
from penstock_operator.reconcile.decide.operations.prepare import (
    fence_former_incarnation,
    may_take_over,
    remove_superfluous_standby,
)
from penstock_operator.reconcile.decide.refusals import PODS_STUCK, REVISION_LOST, explain, stuck_pods
from penstock_operator.reconcile.decide.restore.committed_end import (
    Lost,
    Unknown,
    from_savepoint,
    incarnation_restore,
    origin,
)
from penstock_operator.reconcile.decide.restore.stopping import (
    Blocked,
    StopNow,
    Wait,
    choose_stop,
    end_deadline,
    end_overdue,
)
from penstock_operator.reconcile.decide.savepoints.requested import with_completed_savepoint, with_requested_savepoint
from penstock_operator.resources.names import is_below, savepoint_folder

if TYPE_CHECKING:
    from penstock_operator.api.status.operation import Operation
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision
    from penstock_operator.storage.snapshots import StoredSnapshot


PROMPT_FOR = timedelta(seconds=20)
"""Time in which the operator looks for a savepoint at short intervals. A savepoint that takes longer is not urgent."""
HANDOVER_PATIENCE = timedelta(seconds=20)
"""Time that Kubernetes' controllers may need to observe that a Deployment has changed."""


def stop(ctx: Context) -> Decision:
    """Stop the running incarnation with a savepoint, or determine the state from which its successor continues."""
    op, running, spec = ctx.op, ctx.status.running, ctx.effective_spec
    if running is None:
        return ctx.advance(restore=ctx.status.next_restore)
    if spec is None:
        text = f"the spec is not valid, and ControllerRevision {running.revision} cannot be read. Correct the spec"
        return ctx.wait(text, blocked=REVISION_LOST)
    if op.trigger_id is not None:
        return _await_savepoint(ctx)
    removal = remove_superfluous_standby(ctx)
    if removal is not None:
        return removal
    if op.retry_at is not None and ctx.now < op.retry_at:
        return ctx.wait(op.message, blocked=op.blocked, after=op.retry_at - ctx.now)
    waited, patience = ctx.now - op.step_since, ctx.settings.not_running_grace
    choice = choose_stop(
        spec, running, ctx.seen, now=ctx.now, waited=waited, patience=patience, ends_by=end_deadline(ctx)
    )
    if isinstance(choice, StopNow):
        if end_overdue(ctx) and spec.job.upgrade_mode != "stateless":
            ctx = _with_end_timeout(ctx)
        return ctx.advance(restore=choice.restore, take_newest=choice.newest)
    if isinstance(choice, Wait):
        return ctx.pending(choice.message)
    if isinstance(choice, Blocked):
        return ctx.wait(choice.message, blocked=choice.reason)
    return request_savepoint(ctx)


def _with_end_timeout(ctx: Context) -> Context:
    text = (
        f"the job has been {ctx.seen.engine.state} for {ctx.settings.ending_timeout} and does not end; the operator "
        "stops its pods and continues from the newest complete checkpoint"
    )
    return ctx.failed("EndTimeout", text).with_event("EndTimeout", text, warning=True)


def request_savepoint(ctx: Context) -> Decision:
    """Record the folder and the trigger id of a new attempt, then send the request to the engine."""
    op, running, spec = ctx.op, ctx.status.running, ctx.effective_spec
    if running is None or spec is None:
        return ctx.wait("no incarnation runs")
    attempt = op.attempt + 1
    subject = ctx.subject
    job_folder = savepoint_folder(subject.namespace, subject.name, subject.uid)
    folder = f"{spec.storage.savepoints}/{job_folder}/{op.id}-{attempt}"
    trigger = ctx.digest(op.id, "stop", attempt)
    ctx = ctx.with_op(
        attempt=attempt,
        trigger_id=trigger,
        request_id=None,
        target_directory=folder,
        stop_job_id=running.job_id,
        deadline=ctx.now + spec.upgrade.savepoint_timeout,
        retry_at=None,
        blocked=ctx.reported_failure,
    )
    ctx = with_requested_savepoint(ctx, folder, running)
    if not ctx.reported_failure:
        ctx = ctx.with_event("SavepointTriggered", f"stopping with a savepoint to {folder}")
    return ctx.act(StopWithSavepoint(running.job_id, folder, trigger), "stopping with a savepoint")


def _await_savepoint(ctx: Context) -> Decision:
    op, seen = ctx.op, ctx.seen
    sealed, engine = seen.storage.sealed, seen.engine
    if sealed is not None and not _overtaken(ctx, sealed):
        return _complete(ctx, sealed.path, sealed.checkpoint_id)
    result = seen.last
    if result is not None and result.ok and result.request_id and result.request_id != op.request_id:
        return ctx.with_op(request_id=result.request_id).done()
    request = engine.request
    if request is not None and request.state == "Completed" and request.location:
        if is_below(op.target_directory, request.location):
            return _complete(ctx, request.location, None)
        where = f"the engine reports {request.location}, which is not in {op.target_directory}"
        return ctx.retry("SavepointFailed", _savepoint_remedy(where), trigger_id=None)
    if request is not None and request.state == "Failed":
        return ctx.retry("SavepointFailed", _savepoint_remedy(request.cause), trigger_id=None)
    if request is not None and request.state == "InProgress":
        if ctx.past_deadline:
            return ctx.retry(
                "SavepointTimeout", _savepoint_remedy("it was not complete before the timeout"), trigger_id=None
            )
        return ctx.pending("the savepoint is being written", after=_soon(ctx))
    return _unanswered(ctx)


def _unanswered(ctx: Context) -> Decision:
    """Return the decision if neither storage nor the engine has information about the savepoint."""
    op, engine, storage = ctx.op, ctx.seen.engine, ctx.seen.storage
    failure = ctx.failed_action("StopWithSavepoint")
    if failure is not None and failure.code != "EngineUnreachable":
        return ctx.retry("SavepointFailed", _savepoint_remedy(failure.message), trigger_id=None)
    if not storage.was_read or storage.error:
        return ctx.pending("") if ctx.reported_failure else ctx.wait_for_storage("looking for the savepoint")
    if engine.running and failure is None:
        action = StopWithSavepoint(op.stop_job_id or "", op.target_directory or "", op.trigger_id or "")
        return ctx.act(action, "stopping with a savepoint")
    if ctx.past_deadline or (engine.reachable and not engine.running):
        return ctx.with_op(trigger_id=None, request_id=None).done(after=ctx.settings.progress)
    return ctx.pending(f"waiting for the engine: {engine.error or engine.state}", after=_soon(ctx))


def _soon(ctx: Context) -> timedelta | None:
    """Return the short interval at which to look for the savepoint, or None for the normal interval."""
    return ctx.settings.prompt if ctx.now - ctx.op.step_since < PROMPT_FOR else None


def _overtaken(ctx: Context, sealed: StoredSnapshot) -> bool:
    """Return whether the job continued after the savepoint and completed a checkpoint. The savepoint is then not the
    last state of the job.
    """
    newest = ctx.seen.engine.checkpoints.latest_id if ctx.seen.engine.running else None
    return newest is not None and sealed.checkpoint_id is not None and newest > sealed.checkpoint_id


def _complete(ctx: Context, path: str, checkpoint_id: int | None) -> Decision:
    restore = from_savepoint(path, f"savepoint of {ctx.op.kind.lower()} {ctx.op.id}", checkpoint_id)
    ctx = ctx.with_event("SavepointCompleted", f"{path}; verifying it before the pods are stopped")
    return ctx.advance(restore=restore, take_newest=True, target_directory=ctx.op.target_directory)


def _savepoint_remedy(cause: str) -> str:
    return (
        f"the savepoint failed: {cause}. The job keeps running. If this repeats, correct the savepoint location, or "
        "set job.upgradeMode to last-state to continue from the newest checkpoint"
    )


def seal(ctx: Context) -> Decision:
    """Verify the state for the successor. Read the state in the same way as the restore will."""
    op = ctx.op
    if op.retry_at is not None and ctx.now < op.retry_at:
        return ctx.wait(op.message, blocked=op.blocked, after=op.retry_at - ctx.now)
    restore = op.restore
    if restore is None or restore.path is None:
        return ctx.advance(restore=restore, take_newest=op.take_newest)
    verdict = ctx.seen.storage.verdict(restore.path)
    if verdict is None:
        return ctx.wait_for_storage(f"verifying {restore.path}")
    if not verdict.ok:
        return _torn(ctx, restore, verdict.reason)
    sealed = restore.model_copy(
        update={
            "checkpoint_id": restore.checkpoint_id if restore.checkpoint_id is not None else verdict.checkpoint_id,
            "time": restore.time or verdict.time,
        }
    )
    if sealed.kind == "Savepoint" and op.kind != "Recover":
        running = ctx.status.running
        checkpoint = Checkpoint(
            path=restore.path,
            id=sealed.checkpoint_id,
            job_id=op.stop_job_id,
            revision=running.revision if running else None,
            time=sealed.time or ctx.now,
        )
        ctx = with_completed_savepoint(ctx.with_status(last_savepoint=checkpoint), restore.path).with_op(saved=True)
    return ctx.with_status(next_restore=sealed).advance(restore=sealed, take_newest=op.take_newest)


def _torn(ctx: Context, restore: Restore, reason: str) -> Decision:
    message = f"{restore.path} is not complete: {reason}"
    if ctx.seen.engine.running:
        return ctx.advance("Stop", attempt=ctx.op.attempt, retry_at=ctx.now + ctx.settings.backoff_first, restore=None)
    remedy = (
        "The job is stopped, and no state is deleted. Restore the files, or set job.initialSavepointPath to another "
        "snapshot and change job.savepointRedeployNonce"
    )
    return ctx.wait(f"{message}. {remedy}", blocked="SnapshotTorn", after=ctx.settings.backoff_limit)


def teardown(ctx: Context) -> Decision:
    """Remove the pods, wait until they are gone, and then determine the state from which the successor starts."""
    if may_take_over(ctx):
        fenced = _settle(ctx) if ctx.op.fenced else fence_former_incarnation(ctx)
        if fenced is not None:
            return fenced
    ctx = ctx.with_op(standby=None)
    seen, op = ctx.seen, ctx.op
    if seen.replicas > 0 and _is_handing_over(ctx):
        return ctx.wait(
            "waiting until Kubernetes removes pods of one of the two incarnations", after=ctx.settings.prompt
        )
    if seen.replicas > 0:
        failure = ctx.failed_action("ScaleDown")
        if failure is not None:
            return ctx.wait(explain(failure), blocked=failure.code, after=ctx.settings.backoff_first)
        return ctx.act(ScaleDown(), "stopping the pods")
    overdue = ctx.now - op.step_since > ctx.settings.teardown_timeout
    remaining_pods = [p for p in seen.left if not (overdue and p.terminating and p.node_lost)]
    if remaining_pods:
        text = f"waiting for {len(remaining_pods)} pods to end: {', '.join(p.name for p in remaining_pods[:3])}"
        if ctx.now - op.step_since <= ctx.settings.stuck_pods_timeout:
            return ctx.wait(text)
        return ctx.wait(stuck_pods([p.name for p in remaining_pods]), blocked=PODS_STUCK)
    running = ctx.status.running
    if running is not None and not op.fenced:
        return _fence(ctx, running.job_id)
    if seen.left:
        return ctx.act(ForceDelete(tuple(p.name for p in seen.left)), "removing pods of a node that does not respond")
    return _settle(ctx)


def _is_handing_over(ctx: Context) -> bool:
    """Return whether two incarnations have pods and Kubernetes has removed none of them since the operator applied the Deployments.

    If the number of pods changed now, no pod would ever be removed (see `prepare`).
    """
    seen = ctx.seen
    if any(d is not None and d.standby for d in (seen.master, seen.worker)):
        return False
    remaining = {p.job_id for p in seen.left if not (p.terminating or p.node_lost)}
    return len(remaining) > 1 and ctx.now - ctx.op.step_since < HANDOVER_PATIENCE


def _fence(ctx: Context, job_id: str) -> Decision:
    """Fence the former incarnation. A pod that the API does not show may still run, on a lost node or after a forced
    deletion.

    The next incarnation has its own folder. So the engine's fencing, which works within a folder, does not stop the
    former incarnation. This function stops it. The checkpoints that the former incarnation has already completed stay
    valid, but it cannot complete another checkpoint.
    """
    last, lost = ctx.seen.last, [p.name for p in ctx.seen.left]
    if last is None or last.action != "FenceIncarnation":
        return ctx.act(FenceIncarnation(job_id), "fencing off the former incarnation, so that it can write nothing")
    if lost and not last.ok:
        return ctx.wait(
            f"{lost[0]} is on a node that does not respond and cannot be fenced off: {last.message}. Give the operator "
            "write access to storage.checkpoints, or delete the node if it is switched off",
            blocked="StorageUnavailable",
            after=ctx.settings.backoff_first,
        )
    if not last.ok:
        ctx = ctx.with_event(
            "NotFenced", f"{last.message}; all pods have ended, so the operator continues", warning=True
        )
    if lost:
        ctx = ctx.with_event(
            "PodsAbandoned", f"{', '.join(lost[:3])}: the node does not respond; the pods are fenced off", warning=True
        )
    return ctx.with_op(fenced=True).done()


def _settle(ctx: Context) -> Decision:
    """Determine the state for the successor and for a rollback. The pods are gone, so the state no longer changes."""
    op, running, storage = ctx.op, ctx.status.running, ctx.seen.storage
    if op.kind == "Delete":
        return ctx.advance()
    end = incarnation_restore(running, storage) if running is not None else None
    nothing_to_know = isinstance(end, Unknown) and op.kind == "Rollback" and op.never_started
    named = not op.take_newest or nothing_to_know
    no_way_back = named and ctx.now - op.step_since > ctx.settings.teardown_timeout
    if isinstance(end, Unknown) and not (nothing_to_know or no_way_back):
        return ctx.wait_for_storage("reading the newest checkpoint")
    if isinstance(end, Unknown) and not nothing_to_know:
        text = f"{end.message}. The job starts from the state that the spec chooses, and a rollback is not possible"
        ctx = ctx.with_event("NoWayBack", text, warning=True)
    start = origin(op.restore, named=named, own=_made_by_this_stop(op), running=running, storage=storage)
    if isinstance(start, Unknown | Lost):
        return ctx.wait(start.message, blocked="StateLost", after=ctx.settings.backoff_first)
    if op.kind == "Rollback":
        ctx = ctx.with_op(restore=start, fallback_restore=op.restore).with_status(next_restore=start)
    elif op.take_newest:
        ctx = ctx.with_op(restore=start, fallback_restore=start).with_status(next_restore=start)
    elif isinstance(end, Restore):
        ctx = ctx.with_op(fallback_restore=end)
    if op.kind == "Suspend" or (op.kind in ("Upgrade", "Recover") and _suspension_wanted(ctx)):
        return _suspended(ctx)
    return ctx.advance()


def _suspension_wanted(ctx: Context) -> bool:
    return ctx.spec is not None and ctx.spec.job.state == "suspended"


def _made_by_this_stop(op: Operation) -> bool:
    """Return whether the restore point is the savepoint of the stopped incarnation. Only then do its number and the
    numbers of the incarnation's checkpoints form one sequence.
    """
    path = op.restore.path if op.restore else None
    return path is not None and is_below(op.target_directory, path)


def _suspended(ctx: Context) -> Decision:
    restore = ctx.op.restore
    where = restore.path if restore and restore.path else "empty state"
    ctx = ctx.with_event("Suspended", f"set job.state to running to continue from {where}")
    ctx = ctx.end("Succeeded", f"suspended; resumes from {where}")
    return ctx.retire().with_status(running=None, next_restore=restore, error=None).done()
