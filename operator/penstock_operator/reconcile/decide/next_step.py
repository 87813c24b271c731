"""What to do next for one FlinkJob: a pure function from what is wanted, remembered and seen to one step.

The problem. A stateful job is changed by a dozen calls to two APIs and a store, over minutes, by a process that may
die between any two of them, while the user edits the spec again and nodes go away. Nothing may be lost, nothing
repeated, and everything must end.

The way. There is no script that runs from begin to end. There is one question, asked again and again: *given all this,
what is the next single step?* The answer is computed from three things only: the spec, the status (what was decided
before, written down before it was done), and what is seen now. An answer is a new status, at most one action, and
when to ask again; the loop writes the status, then does the action, then asks again. A crash anywhere loses nothing
but time, because the answer does not depend on memory, and because each action may be done twice.

    first match
    ───────────────────────────────────────────────────────────────────────────────────────────────────────────
    0  nothing could be looked at           wait, and say so; deletion goes on by its timeout
    1  being deleted, our finalizer gone    nothing more to do
    2  being deleted                        Delete, whatever else was going on (`operations.dispose`)
    3  no finalizer                         set it, before anything exists that it protects
    4  a check pod nobody wants             remove it
    5  objects of an earlier FlinkJob       wait until they are gone
    5b what is remembered is lost           adopt what runs, or touch nothing (`adoption`)
    5c a savepoint without a FlinkSnapshot  make one (`savepoints.asked`)
    6  an operation that is out of date     abandon it, if it has not come to the point of no return (`operations.abandon`)
    7  an operation                         its step (`operations`)
    8  the desired revision is not stored   store it (ControllerRevision)
    8b pods that stand by for nothing       those of what runs are applied again (`operations.prepare`)
    9  something to start                   the operation (`operations.begin`): its intent is written before it is carried out
    10 something to mend or to keep up      that (`upkeep`)
    11 otherwise                            look again later

The point of no return of an upgrade is the moment the engine is asked to stop: from there it is carried to the end,
and a newer spec is the next upgrade. Before it, and while a new revision is only being watched, a newer spec wins at
once. Prior art: Flink's Kubernetes operator (observe and reconcile apart, decisions as values), Lyft's (the old job
stays until the new one has a chance), and the Kubernetes rule that controllers are level-based.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.reconcile.decide.actions import AddFinalizer, RecordRevision, RemoveFinalizer
from penstock_operator.reconcile.decide.adoption import recall
from penstock_operator.reconcile.decide.decision import Decision
from penstock_operator.reconcile.decide.health.causes import noted
from penstock_operator.reconcile.decide.health.recovery import remembered
from penstock_operator.reconcile.decide.health.rules import watched
from penstock_operator.reconcile.decide.operations import STEPS
from penstock_operator.reconcile.decide.operations.abandon import out_of_date
from penstock_operator.reconcile.decide.operations.begin import next_operation
from penstock_operator.reconcile.decide.operations.dispose import delete
from penstock_operator.reconcile.decide.operations.prepare import put_back
from penstock_operator.reconcile.decide.refusals import explain
from penstock_operator.reconcile.decide.restore.stopping import FENCED
from penstock_operator.reconcile.decide.savepoints.asked import account, pending, told_of_the_rest
from penstock_operator.reconcile.decide.savepoints.retention import disposable
from penstock_operator.reconcile.decide.savepoints.schedule import next_due
from penstock_operator.reconcile.decide.upkeep import stray_check, upkeep

if TYPE_CHECKING:
    from datetime import timedelta

    from penstock_operator.reconcile.decide.context import Context


def next_step(ctx: Context) -> Decision:
    """First match wins."""
    if ctx.seen.failure:
        return _unseen(ctx)
    ctx = noted(ctx)
    if ctx.subject.deleting:
        return _deleting(ctx)
    if not ctx.subject.finalizer:
        return ctx.done(AddFinalizer(), after=_after_failure(ctx, "AddFinalizer"))
    stray = stray_check(ctx)
    if stray is not None and ctx.failed_action("DeleteCheck") is None:
        return ctx.done(stray)
    if ctx.seen.foreign:
        return ctx.done(after=ctx.settings.progress)
    lost = recall(ctx)
    if lost is not None:
        return lost
    accounted = account(ctx)
    if isinstance(accounted, Decision):
        return accounted
    ctx = accounted
    if ctx.status.operation is not None and out_of_date(ctx):
        ctx = ctx.tell("Abandoned", f"{ctx.op.kind} is given up in step {ctx.op.step}: the spec has changed")
        ctx = ctx.end("Abandoned", "the spec has changed")
    if ctx.status.operation is not None:
        return STEPS[ctx.op.step](_retargeted(ctx))
    return _idle(ctx)


def _unseen(ctx: Context) -> Decision:
    """Touch nothing; but an object that is to go must not hang for ever because the operator cannot look at it."""
    failure = unseen(ctx)
    ctx = ctx.failed("OperatorError", failure)
    ctx = ctx.tell("OperatorError", failure, warning=True, key=f"{ctx.subject.generation}/{ctx.digest(failure)}")
    since = ctx.subject.deleting_since
    if since is not None and ctx.subject.finalizer and ctx.now - since >= ctx.deletion_policy.timeout:
        text = (
            "nothing could be looked at until the timeout of the deletion; the FlinkJob goes, Kubernetes removes what it "
            "owned, and what it has on storage stays"
        )
        return ctx.tell("DeletedUnseen", text, warning=True).done(RemoveFinalizer())
    return ctx.done(after=ctx.settings.backoff_first)


def unseen(ctx: Context) -> str:
    """Why nothing is known of the job, and what that means."""
    return (
        f"the operator failed while it looked at the job ({ctx.seen.failure}). What runs is left alone; it looks again. "
        "Its log says more"
    )


def _deleting(ctx: Context) -> Decision:
    if not ctx.subject.finalizer:
        return ctx.done(after=ctx.settings.resync)
    accounted = account(ctx)
    if isinstance(accounted, Decision):
        return accounted
    ctx = accounted
    if ctx.status.operation is None or ctx.op.kind != "Delete":
        policy = ctx.deletion_policy
        running = ctx.status.running
        wanted = policy.savepoint and running is not None and running.finished_at is None
        reason = "the FlinkJob is being deleted"
        if ctx.status.running is not None or ctx.seen.left or ctx.seen.replicas > 0:
            return ctx.begin("Delete", reason, step="Stop" if wanted else "Teardown").done()
        if pending(ctx) or (policy.storage == "Delete" and disposable(ctx.status)):
            return ctx.begin("Delete", reason, step="Dispose").done()
        ctx = told_of_the_rest(ctx)
        return ctx.done(RemoveFinalizer(), after=_after_failure(ctx, "RemoveFinalizer"))
    return delete(ctx)


def _idle(ctx: Context) -> Decision:
    desired = ctx.desired_revision
    if ctx.spec is not None and desired is not None and desired not in ctx.seen.revisions:
        failure = ctx.failed_action("RecordRevision")
        if failure is not None:
            return ctx.failed(failure.code, explain(failure)).done(after=ctx.settings.backoff_first)
        return ctx.done(RecordRevision(desired, ctx.spec))
    left = put_back(ctx)
    if left is not None:
        return left
    ctx = remembered(ctx)
    started = next_operation(ctx)
    if started is not None:
        return started.done()
    ctx = watched(ctx)
    ctx = _tell_trouble(ctx)
    return upkeep(ctx) or ctx.done(after=_quiet(ctx))


def _tell_trouble(ctx: Context) -> Context:
    """What keeps a job from running again that is nobody's operation; once for each time that it stops running."""
    status, engine, troubles = ctx.status, ctx.seen.engine, ctx.seen.troubles
    if engine.suspended and status.job_state == engine.state:
        why = f"{FENCED}: {engine.exception}" if engine.exception else FENCED
        ctx = ctx.tell("Fenced", why, warning=True, key=f"{status.job_id}/{status.job_state_since}/Fenced")
    if status.phase != "Recovering" or engine.running or not troubles:
        return ctx
    trouble = troubles[0]
    return ctx.tell(
        trouble.reason, str(trouble), warning=True, key=f"{status.job_id}/{status.phase_since}/{trouble.reason}"
    )


def _quiet(ctx: Context) -> timedelta:
    """How long until the next look at a job where nothing is to be done."""
    settings = ctx.settings
    running = ctx.status.running
    settled = ctx.seen.engine.running if running is not None and running.finished_at is None else True
    pause = settings.watch if running is not None and running.finished_at is None else settings.resync
    if not settled:
        pause = min(pause, settings.progress * 2)
    upcoming = next_due(ctx)
    if upcoming is not None and upcoming > ctx.now:
        pause = min(pause, upcoming - ctx.now)
    return pause


def _retargeted(ctx: Context) -> Context:
    """A rescale goes to the newest parallelism, as long as the engine has not been asked for another one."""
    op, spec, running = ctx.op, ctx.spec, ctx.status.running
    if op.kind != "Rescale" or spec is None or running is None or op.step == "RemoveWorkers":
        return ctx
    base = ctx.revision_spec(running.revision)
    target = min(spec.job.parallelism, base.job.max_parallelism if base else spec.job.parallelism)
    if target == op.target_parallelism or (op.step == "Rescale" and op.trigger_id is not None):
        return ctx
    return ctx.with_op(
        target_parallelism=target, step="AddWorkers", step_since=ctx.now, attempt=0, retry_at=None, blocked=None
    )


def _after_failure(ctx: Context, action: str) -> timedelta | None:
    return ctx.settings.backoff_first if ctx.failed_action(action) is not None else None
