"""The next step for one FlinkJob: a pure function from the spec, the status and the observation to one step.

The problem: a change of a stateful job needs a dozen calls to two APIs and to storage, over minutes. The process may
crash between any two calls, while the user edits the spec again and nodes fail. Nothing may be lost or repeated, and
every operation must end.

The solution: no script runs from start to end. The operator computes again and again *the next single step*. The
computation uses only three inputs: the spec, the status (the earlier decisions, each written before its execution),
and the current observation. The result is a new status, at most one action, and the time of the next computation. The
loop writes the status, executes the action, and computes again. A crash only costs time, because the result does not
depend on memory, and because every action may be executed twice.

The first row that matches applies:

    ───────────────────────────────────────────────────────────────────────────────────────────────────────────
    0   nothing could be observed            wait and report it; a deletion ends at its timeout
    1   deleted, without our finalizer       nothing to do
    2   being deleted                        Delete, instead of any other operation (`operations.dispose`)
    3   no finalizer                         add it before the operator creates objects that it protects
    4   a check pod without an operation     delete it
    5   objects of an earlier FlinkJob       wait until they are gone
    5b  the memory in the status is lost     adopt the running job, or do nothing (`adoption`)
    5c  a savepoint without a FlinkSnapshot  create one (`savepoints.requested`)
    6   an operation that is out of date     abandon it, unless it is past the point of no return (`operations.abandon`)
    7   an operation                         its step (`operations`), and the upkeep of the running job if it waits (`during_wait`)
    8   the current revision is not stored   store it (ControllerRevision)
    8b  standby pods without an operation    apply the objects of the running job again (`operations.prepare`)
    8c  other settings of the autoscaler     send them to the running job
    9   an operation is necessary            start it (`operations.begin`); its intent is written before its execution
    10  housekeeping is necessary            do it (`upkeep`)
    11  otherwise                            observe again later

The point of no return of an upgrade is the request to the engine to stop. After this request, the operator completes
the upgrade, and a newer spec causes the next upgrade. Before this request, a newer spec takes effect immediately. The
same applies while a new revision is only being watched.

Prior art: Flink's Kubernetes operator separates observation from reconciliation, and represents a decision as a value. Lyft's
operator keeps the old job until the new job can start. Kubernetes requires controllers to be level-based.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.reconcile.decide.actions import AddFinalizer, RecordRevision, RemoveFinalizer
from penstock_operator.reconcile.decide.adoption import adopted, recover_lost_status
from penstock_operator.reconcile.decide.autoscaling import configure_autoscaler, with_autoscaler
from penstock_operator.reconcile.decide.decision import Decision
from penstock_operator.reconcile.decide.during_wait import after_step, before_step
from penstock_operator.reconcile.decide.health.causes import with_terminations
from penstock_operator.reconcile.decide.health.recovery import with_failure_record
from penstock_operator.reconcile.decide.health.rules import with_health
from penstock_operator.reconcile.decide.operations import STEPS
from penstock_operator.reconcile.decide.operations.abandon import out_of_date
from penstock_operator.reconcile.decide.operations.begin import next_operation, unused_parallelism
from penstock_operator.reconcile.decide.operations.dispose import delete, is_saved
from penstock_operator.reconcile.decide.operations.prepare import release_adopted, remove_abandoned_standby
from penstock_operator.reconcile.decide.refusals import explain, leftovers
from penstock_operator.reconcile.decide.restore.beginning import with_origin
from penstock_operator.reconcile.decide.restore.stopping import FENCED
from penstock_operator.reconcile.decide.savepoints.requested import (
    pending,
    with_leftovers_event,
    with_recorded_savepoints,
)
from penstock_operator.reconcile.decide.savepoints.retention import disposable
from penstock_operator.reconcile.decide.savepoints.schedule import next_due
from penstock_operator.reconcile.decide.upkeep import stray_check, upkeep

if TYPE_CHECKING:
    from datetime import timedelta

    from penstock_operator.reconcile.decide.context import Context


def next_step(ctx: Context) -> Decision:
    """Return the next step: the first row of the table that matches."""
    if ctx.seen.failure:
        return _not_observed(ctx)
    ctx = with_autoscaler(with_origin(with_terminations(ctx)))
    if ctx.subject.deleting:
        return _deleting(ctx)
    if not ctx.subject.finalizer:
        return ctx.done(AddFinalizer(), after=_after_failure(ctx, "AddFinalizer"))
    stray = stray_check(ctx)
    if stray is not None and ctx.failed_action("DeleteCheck") is None:
        return ctx.done(stray)
    if ctx.seen.foreign:
        return _name_taken(ctx)
    lost = recover_lost_status(ctx)
    if lost is not None:
        return lost
    recorded = with_recorded_savepoints(ctx)
    if isinstance(recorded, Decision):
        return recorded
    ctx = recorded
    if ctx.status.operation is not None and out_of_date(ctx):
        ctx = ctx.with_event("Abandoned", f"{ctx.op.kind} is given up in step {ctx.op.step}: the spec has changed")
        ctx = ctx.end("Abandoned", "the spec has changed")
    if ctx.status.operation is not None:
        prepared = before_step(ctx)
        if isinstance(prepared, Decision):
            return prepared
        return after_step(prepared, STEPS[prepared.op.step](_retargeted(prepared)))
    return _idle(ctx)


def _name_taken(ctx: Context) -> Decision:
    """Wait for objects of an earlier FlinkJob, which are deleted with their owner. Report objects without an owner,
    which a user must delete.
    """
    if ctx.seen.ownerless:
        text = leftovers(ctx.seen.foreign, ctx.seen.ownerless)
        ctx = ctx.failed("NameTaken", text) if ctx.status.error is None else ctx
        ctx = ctx.with_event("NameTaken", text, warning=True, key=f"{ctx.subject.uid}/{ctx.digest(text)}")
    return ctx.done(after=ctx.settings.progress)


def _not_observed(ctx: Context) -> Decision:
    """Change nothing. After the timeout of a deletion, remove the finalizer.

    Otherwise a FlinkJob that the operator cannot observe could never be deleted.
    """
    failure = observation_failure(ctx)
    ctx = ctx.failed("OperatorError", failure)
    ctx = ctx.with_event("OperatorError", failure, warning=True, key=f"{ctx.subject.generation}/{ctx.digest(failure)}")
    since = ctx.subject.deleting_since
    if since is not None and ctx.subject.finalizer and ctx.now - since >= ctx.deletion_policy.timeout:
        text = (
            "the operator could not observe the job within the timeout of the deletion. The FlinkJob is removed, and "
            "Kubernetes deletes its objects. Its files stay in storage"
        )
        return ctx.with_event("DeletedUnseen", text, warning=True).done(RemoveFinalizer())
    return ctx.done(after=ctx.settings.backoff_first)


def observation_failure(ctx: Context) -> str:
    """Describe why nothing is known about the job, and the consequences."""
    return (
        f"the operator failed while it observed the job ({ctx.seen.failure}). It changes nothing and tries again. Its log "
        "has details"
    )


def _deleting(ctx: Context) -> Decision:
    if not ctx.subject.finalizer:
        return ctx.done(after=ctx.settings.resync)
    recorded = with_recorded_savepoints(ctx)
    if isinstance(recorded, Decision):
        return recorded
    ctx = recorded
    if ctx.status.operation is None or ctx.op.kind != "Delete":
        taken = adopted(ctx)
        if taken is not None:
            return taken
        policy = ctx.deletion_policy
        running = ctx.status.running
        wanted = policy.savepoint and running is not None and running.finished_at is None
        reason = "the FlinkJob is being deleted"
        if ctx.status.running is not None or ctx.seen.left or ctx.seen.replicas > 0:
            return ctx.begin("Delete", reason, step="Stop" if wanted else "Teardown", saved=is_saved(ctx)).done()
        if pending(ctx) or (policy.storage == "Delete" and disposable(ctx.status)):
            return ctx.begin("Delete", reason, step="Dispose", saved=is_saved(ctx)).done()
        ctx = with_leftovers_event(ctx)
        return ctx.done(RemoveFinalizer(), after=_after_failure(ctx, "RemoveFinalizer"))
    return delete(ctx)


def _idle(ctx: Context) -> Decision:
    desired = ctx.desired_revision
    if ctx.spec is not None and desired is not None and desired not in ctx.seen.revisions:
        failure = ctx.failed_action("RecordRevision")
        if failure is not None:
            return ctx.failed(failure.code, explain(failure)).done(after=ctx.settings.backoff_first)
        return ctx.done(RecordRevision(desired, ctx.spec))
    correction = remove_abandoned_standby(ctx) or release_adopted(ctx)
    if correction is not None:
        return correction
    configured = configure_autoscaler(ctx)
    if configured is not None:
        return configured
    ctx = with_failure_record(ctx)
    started = next_operation(ctx)
    if started is not None:
        return started.done()
    ctx = with_health(ctx)
    ctx = _with_trouble_event(_with_unused_parallelism(ctx))
    return upkeep(ctx) or ctx.done(after=_pause(ctx))


def _with_unused_parallelism(ctx: Context) -> Context:
    """Report that a new parallelism has no effect, because the job has finished."""
    note = unused_parallelism(ctx)
    return (
        ctx.with_event("NotRescaled", note, warning=True, key=f"{ctx.subject.uid}/{ctx.digest(note)}") if note else ctx
    )


def _with_trouble_event(ctx: Context) -> Context:
    """Report a problem that keeps the job from running again and that belongs to no operation. Report it once each
    time the job stops running.
    """
    status, engine, troubles = ctx.status, ctx.seen.engine, ctx.seen.troubles
    if engine.suspended and status.job_state == engine.state:
        reason = f"{FENCED}: {engine.exception}" if engine.exception else FENCED
        ctx = ctx.with_event("Fenced", reason, warning=True, key=f"{status.job_id}/{status.job_state_since}/Fenced")
    if status.phase != "Recovering" or engine.running or not troubles:
        return ctx
    trouble = troubles[0]
    return ctx.with_event(
        trouble.reason, str(trouble), warning=True, key=f"{status.job_id}/{status.phase_since}/{trouble.reason}"
    )


def _pause(ctx: Context) -> timedelta:
    """Return the time until the next pass over a job that needs no action."""
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
    """Change the target of a rescale to the newest parallelism, unless the engine has already received a request."""
    op, spec, running = ctx.op, ctx.spec, ctx.status.running
    if op.kind != "Rescale" or spec is None or running is None or op.step == "RemoveWorkers" or ctx.is_autoscaled:
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
