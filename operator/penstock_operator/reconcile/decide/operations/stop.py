"""Bring a job to its end without losing where it was: savepoint, proof that it can be read, pods away.

The savepoint goes to a folder that is chosen, and written to the status, before the engine is asked; it is asked under
an id that is written there too. So after a crash the question "did that savepoint happen?" has an answer on storage,
and asking again is harmless. Storage is believed before any reply: a request may fail although its savepoint is
complete, and the engine that knew of it may be gone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.api.status import Checkpoint, Restore
from penstock_operator.reconcile.decide.actions import FenceIncarnation, ForceDelete, ScaleDown, StopWithSavepoint
from penstock_operator.reconcile.decide.operations.prepare import fence_off, let_nothing_stand, may_take_over
from penstock_operator.reconcile.decide.refusals import explain
from penstock_operator.reconcile.decide.restore.committed_end import (
    Lost,
    Unknown,
    from_savepoint,
    incarnation_restore,
    origin,
)
from penstock_operator.reconcile.decide.restore.stopping import (
    AtOnce,
    Blocked,
    Wait,
    choose_stop,
    end_deadline,
    end_overdue,
)
from penstock_operator.reconcile.decide.savepoints.asked import asked, completed
from penstock_operator.resources.names import savepoint_folder

if TYPE_CHECKING:
    from penstock_operator.api.status import Operation
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision
    from penstock_operator.storage.snapshots import StoredSnapshot


PROMPT_FOR = timedelta(seconds=20)
"""How long a savepoint is looked for at short intervals; one that takes longer takes so much longer, too."""
HANDOVER_PATIENCE = timedelta(seconds=20)
"""How long Kubernetes' controllers may take to see that a Deployment has changed."""


def stop(ctx: Context) -> Decision:
    """End the running incarnation with a savepoint, or find out what its successor goes on from."""
    op, running, spec = ctx.op, ctx.status.running, ctx.effective_spec
    if running is None:
        return ctx.advance(restore=ctx.status.next_restore)
    if spec is None:
        return ctx.wait(f"revision {running.revision} cannot be read")
    if op.trigger_id is not None:
        return _await_savepoint(ctx)
    removal = let_nothing_stand(ctx)
    if removal is not None:
        return removal
    if op.retry_at is not None and ctx.now < op.retry_at:
        return ctx.wait(op.message, blocked=op.blocked, after=op.retry_at - ctx.now)
    waited, patience = ctx.now - op.step_since, ctx.settings.not_running_grace
    choice = choose_stop(
        spec, running, ctx.seen, now=ctx.now, waited=waited, patience=patience, ends_by=end_deadline(ctx)
    )
    if isinstance(choice, AtOnce):
        if end_overdue(ctx) and spec.job.upgrade_mode != "stateless":
            ctx = _told_of_end(ctx)
        return ctx.advance(restore=choice.restore, take_newest=choice.newest)
    if isinstance(choice, Wait):
        return ctx.pending(choice.message)
    if isinstance(choice, Blocked):
        return ctx.wait(choice.message, blocked=choice.reason)
    return ask_for_savepoint(ctx)


def _told_of_end(ctx: Context) -> Context:
    text = (
        f"the job has been {ctx.seen.engine.state} for {ctx.settings.ending_timeout} and does not end; its pods are "
        "stopped, and it goes on from the newest complete checkpoint"
    )
    return ctx.failed("EndTimeout", text).tell("EndTimeout", text, warning=True)


def ask_for_savepoint(ctx: Context) -> Decision:
    """Fix folder and trigger id of a new attempt, then ask the engine under them."""
    op, running, spec = ctx.op, ctx.status.running, ctx.effective_spec
    if running is None or spec is None:
        return ctx.wait("the job is gone")
    attempt = op.attempt + 1
    subject = ctx.subject
    own = savepoint_folder(subject.namespace, subject.name, subject.uid)
    folder = f"{spec.storage.savepoints}/{own}/{op.id}-{attempt}"
    trigger = ctx.digest(op.id, "stop", attempt)
    ctx = ctx.with_op(
        attempt=attempt,
        trigger_id=trigger,
        request_id=None,
        target_directory=folder,
        stop_job_id=running.job_id,
        deadline=ctx.now + spec.upgrade.savepoint_timeout,
        retry_at=None,
        blocked=ctx.lasting,
    )
    ctx = asked(ctx, folder, running)
    if not ctx.lasting:
        ctx = ctx.tell("SavepointTriggered", f"stopping with a savepoint to {folder}")
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
        return _complete(ctx, request.location, None)
    if request is not None and request.state == "Failed":
        return ctx.retry("SavepointFailed", _savepoint_remedy(request.cause), trigger_id=None)
    if request is not None and request.state == "InProgress":
        if ctx.past_deadline:
            return ctx.retry("SavepointTimeout", _savepoint_remedy("not complete in time"), trigger_id=None)
        return ctx.pending("the savepoint is being written", after=_soon(ctx))
    return _unanswered(ctx)


def _unanswered(ctx: Context) -> Decision:
    """Neither storage nor the engine know of the savepoint (yet, or any more)."""
    op, engine, storage = ctx.op, ctx.seen.engine, ctx.seen.storage
    failure = ctx.failed_action("StopWithSavepoint")
    if failure is not None and failure.code != "EngineUnreachable":
        return ctx.retry("SavepointFailed", _savepoint_remedy(failure.message), trigger_id=None)
    if not storage.asked or storage.error:
        return ctx.pending("") if ctx.lasting else ctx.wait_for_storage("looking for the savepoint")
    if engine.running and failure is None:
        action = StopWithSavepoint(op.stop_job_id or "", op.target_directory or "", op.trigger_id or "")
        return ctx.act(action, "stopping with a savepoint")
    if ctx.past_deadline or (engine.reachable and not engine.running):
        return ctx.with_op(trigger_id=None, request_id=None).done(after=ctx.settings.progress)
    return ctx.pending(f"waiting for the engine: {engine.error or engine.state}", after=_soon(ctx))


def _soon(ctx: Context) -> timedelta | None:
    """When to look for the savepoint again; None: as ever."""
    return ctx.settings.prompt if ctx.now - ctx.op.step_since < PROMPT_FOR else None


def _overtaken(ctx: Context, sealed: StoredSnapshot) -> bool:
    """The job did not stop after all and has completed a checkpoint since: the savepoint is not its end."""
    newest = ctx.seen.engine.checkpoints.latest_id if ctx.seen.engine.running else None
    return newest is not None and sealed.checkpoint_id is not None and newest > sealed.checkpoint_id


def _complete(ctx: Context, path: str, checkpoint_id: int | None) -> Decision:
    restore = from_savepoint(path, f"savepoint of {ctx.op.kind.lower()} {ctx.op.id}", checkpoint_id)
    ctx = ctx.tell("SavepointCompleted", f"{path}; verifying it before the pods are stopped")
    return ctx.advance(restore=restore, take_newest=True, target_directory=ctx.op.target_directory)


def _savepoint_remedy(cause: str) -> str:
    return (
        f"the savepoint failed: {cause}. The job runs on. If this stays so, mend the savepoint location, or set "
        "job.upgradeMode to last-state to go on from the newest checkpoint"
    )


def seal(ctx: Context) -> Decision:
    """Read what the successor will be restored from, as it will be read then."""
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
        made = Checkpoint(
            path=restore.path,
            id=sealed.checkpoint_id,
            job_id=op.stop_job_id,
            revision=running.revision if running else None,
            time=sealed.time or ctx.now,
        )
        ctx = completed(ctx.with_status(last_savepoint=made), restore.path)
    return ctx.with_status(next_restore=sealed).advance(restore=sealed, take_newest=op.take_newest)


def _torn(ctx: Context, restore: Restore, why: str) -> Decision:
    message = f"{restore.path} is not complete: {why}"
    if ctx.seen.engine.running:
        return ctx.advance("Stop", attempt=ctx.op.attempt, retry_at=ctx.now + ctx.settings.backoff_first, restore=None)
    remedy = (
        "The job is stopped and nothing is thrown away. Restore the files, or set job.initialSavepointPath to another "
        "snapshot and change job.savepointRedeployNonce"
    )
    return ctx.wait(f"{message}. {remedy}", blocked="SnapshotTorn", after=ctx.settings.backoff_limit)


def teardown(ctx: Context) -> Decision:
    """Take the pods away and wait until they are gone; then settle what the successor starts from."""
    if may_take_over(ctx):
        fenced = _settle(ctx) if ctx.op.fenced else fence_off(ctx)
        if fenced is not None:
            return fenced
    ctx = ctx.with_op(standby=None)
    seen, op = ctx.seen, ctx.op
    if seen.replicas > 0 and _is_handing_over(ctx):
        return ctx.wait("waiting for Kubernetes to see which of two incarnations is to go", after=ctx.settings.prompt)
    if seen.replicas > 0:
        failure = ctx.failed_action("ScaleDown")
        if failure is not None:
            return ctx.wait(explain(failure), blocked=failure.code, after=ctx.settings.backoff_first)
        return ctx.act(ScaleDown(), "stopping the pods")
    overdue = ctx.now - op.step_since > ctx.settings.teardown_timeout
    left = [p for p in seen.left if not (overdue and p.terminating and p.node_lost)]
    if left:
        return ctx.wait(f"waiting for {len(left)} pods to go: {', '.join(p.name for p in left[:3])}")
    running = ctx.status.running
    if running is not None and not op.fenced:
        return _fence(ctx, running.job_id)
    if seen.left:
        return ctx.act(ForceDelete(tuple(p.name for p in seen.left)), "removing pods of a node that does not answer")
    return _settle(ctx)


def _is_handing_over(ctx: Context) -> bool:
    """Deployments were applied as those of one of two incarnations, and the pods of the other are not told to go yet: with another
    number of pods now, neither would ever go (see `prepare`)."""
    seen = ctx.seen
    if any(d is not None and d.standby for d in (seen.master, seen.worker)):
        return False
    there = {p.job_id for p in seen.left if not (p.terminating or p.node_lost)}
    return len(there) > 1 and ctx.now - ctx.op.step_since < HANDOVER_PATIENCE


def _fence(ctx: Context, job_id: str) -> Decision:
    """A pod that cannot be seen may still run: on a node that does not answer, or deleted by force.

    The next incarnation has a folder of its own, so the engine's fencing, which works within a folder, does not stop
    the former one. This does: what it wrote until now counts, what it writes from now on never will.
    """
    last, lost = ctx.seen.last, [p.name for p in ctx.seen.left]
    if last is None or last.action != "FenceIncarnation":
        return ctx.act(FenceIncarnation(job_id), "making sure that the former incarnation writes no more")
    if lost and not last.ok:
        return ctx.wait(
            f"{lost[0]} is on a node that does not answer and cannot be fenced off: {last.message}. Give the operator "
            "write access to storage.checkpoints, or delete the node when it is off",
            blocked="StorageUnavailable",
            after=ctx.settings.backoff_first,
        )
    if not last.ok:
        ctx = ctx.tell("NotFenced", f"{last.message}; all pods have gone, so this is not waited for", warning=True)
    if lost:
        ctx = ctx.tell(
            "PodsAbandoned", f"{', '.join(lost[:3])}: the node does not answer; they are fenced off", warning=True
        )
    return ctx.with_op(fenced=True).done()


def _settle(ctx: Context) -> Decision:
    """The pods are gone, nothing can write any more: fix what the successor and a rollback start from."""
    op, running, storage = ctx.op, ctx.status.running, ctx.seen.storage
    if op.kind == "Delete":
        return ctx.advance()
    end = incarnation_restore(running, storage) if running is not None else None
    nothing_to_know = isinstance(end, Unknown) and op.kind == "Rollback" and op.never_started
    if isinstance(end, Unknown) and not nothing_to_know:
        return ctx.wait_for_storage("reading the newest checkpoint")
    named = not op.take_newest or nothing_to_know
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
    """The restore point is the savepoint of the incarnation that was stopped, and counts like its checkpoints."""
    path = op.restore.path if op.restore else None
    return bool(path and op.target_directory and path.startswith(f"{op.target_directory}/"))


def _suspended(ctx: Context) -> Decision:
    restore = ctx.op.restore
    where = restore.path if restore and restore.path else "nothing: it will start empty"
    ctx = ctx.tell("Suspended", f"set job.state to running to go on from {where}")
    ctx = ctx.end("Succeeded", f"suspended; resumes from {where}")
    return ctx.retire().with_status(running=None, next_restore=restore, error=None).done()
