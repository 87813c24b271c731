"""Deletion. It always ends: whatever it waits for has a deadline, after which it is said in an event and left. No pause, and no
question that is not answered, goes beyond it (`time_left`).

A savepoint is taken only if the spec asks for it and the job runs; one that is FINISHED needs none. The pods are waited for, because a new FlinkJob of
the same name must not meet them. Then the object goes, and Kubernetes removes what it owned.

What is to be done is what the manifest says of it, also where something else in it is not valid; with whose settings, is
said by the revisions that wrote what is there. Checkpoints of an earlier FlinkJob of the name stay, whose deletion has left
them, if this one was started from them and has got no further: they are all that is left of the name.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.reconcile.decide.actions import DisposeJobStorage, RemoveFinalizer
from penstock_operator.reconcile.decide.operations.stop import ask_for_savepoint, seal, stop, teardown
from penstock_operator.reconcile.decide.refusals import explain
from penstock_operator.reconcile.decide.savepoints.asked import is_made, pending, told_of_the_rest
from penstock_operator.reconcile.decide.savepoints.retention import disposable
from penstock_operator.reconcile.decide.storage_settings import disposal_specs

if TYPE_CHECKING:
    from penstock_operator.api.status import Superseded
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision

RECORD_TIMEOUT = timedelta(seconds=30)
"""For the FlinkSnapshot of a savepoint, also when the time of the deletion is over."""
DELETING = "deleting checkpoints"
NAMED = 3
"""So many folders are named in an event."""


def time_left(ctx: Context) -> timedelta | None:
    """Until what deletion does now is given up, never negative; None if nothing is being deleted."""
    op = ctx.status.operation
    if op is None or op.kind != "Delete":
        return None
    until = op.deadline if op.step == "Dispose" else None
    return max((until or op.started_at + ctx.deletion_policy.timeout) - ctx.now, timedelta(0))


def longest_answer(ctx: Context) -> float | None:
    """Seconds that an answer may take: what deletion has left, but so much that there can be one."""
    left = time_left(ctx)
    return None if left is None else max(left.total_seconds(), 1.0)


def delete(ctx: Context) -> Decision:
    """One pass over a FlinkJob that is being deleted; the next one is not after the time there is."""
    decision, left = _delete(ctx), time_left(ctx)
    if decision.requeue is None or not left:
        return decision
    return replace(decision, requeue=min(decision.requeue, left))


def _delete(ctx: Context) -> Decision:
    op = ctx.op
    overdue = ctx.now - op.started_at >= ctx.deletion_policy.timeout
    if op.step in ("Stop", "Seal") and overdue:
        ctx = ctx.tell("DeletedWithoutSavepoint", f"no savepoint in time: {op.message}; deletion goes on", warning=True)
        return ctx.advance("Teardown")
    if op.step == "Stop" and op.trigger_id is None and (op.retry_at is None or ctx.now >= op.retry_at):
        if ctx.seen.engine.running:
            return ask_for_savepoint(ctx)
        if ctx.seen.engine.terminal and ctx.seen.engine.state == "FINISHED":
            return ctx.advance("Teardown")
        ctx = ctx.tell("DeletedWithoutSavepoint", "the job is not RUNNING, so no savepoint can be taken", warning=True)
        return ctx.advance("Teardown")
    refused = ctx.failed_action("ScaleDown")
    if op.step == "Teardown" and overdue and (ctx.seen.replicas == 0 or refused is not None):
        if refused is not None:
            text = f"the pods could not be stopped: {explain(refused)}. Kubernetes removes them with the FlinkJob"
            ctx = ctx.tell("PodsAbandoned", text, warning=True)
        elif ctx.seen.left:
            ctx = ctx.tell(
                "PodsAbandoned", f"{len(ctx.seen.left)} pods did not go in time; deletion goes on", warning=True
            )
        return ctx.advance()
    steps = {"Stop": stop, "Seal": seal, "Teardown": teardown}
    return steps.get(op.step, dispose)(ctx)


def dispose(ctx: Context) -> Decision:
    """Delete the checkpoints if that is wished; then let the object go, whatever happened."""
    if ctx.deletion_policy.storage != "Delete":
        return _let_go(ctx)
    if ctx.op.deadline is None:
        ctx = _begun(ctx)
    left, failure = _left(ctx)
    kept = tuple(former for former in ctx.status.superseded if former not in disposable(ctx.status))
    ctx = ctx.with_status(superseded=(*left, *kept), running=None)
    if not left:
        return _let_go(ctx)
    if ctx.past_deadline:
        why = failure or ctx.op.message.removeprefix(DELETING).removeprefix(": ") or "it took too long"
        ctx = ctx.tell("StorageKept", f"{_where(ctx, left)} could not be deleted and stay: {why}", warning=True)
        return _let_go(ctx)
    if failure:
        untried = left[0].failures == 0
        return ctx.wait(f"{DELETING}: {failure}", after=None if untried else ctx.settings.backoff_first)
    return ctx.act(DisposeJobStorage(left[0].job_id, left[0].revision), ctx.op.message or DELETING)


def _let_go(ctx: Context) -> Decision:
    """Once its savepoints are accounted for, or the time for that is over."""
    waiting = pending(ctx)
    if waiting and ctx.op.deadline is None:
        until = max(ctx.op.started_at + ctx.deletion_policy.timeout, ctx.now)
        longest = ctx.now + RECORD_TIMEOUT
        ctx = ctx.with_op(deadline=longest if is_made(ctx) else min(until, longest))
    if waiting and not ctx.past_deadline:
        return ctx.wait(waiting)
    return told_of_the_rest(ctx).act(RemoveFinalizer(), "letting the FlinkJob go")


def _begun(ctx: Context) -> Context:
    """With a deadline, and fresh attempts also for what could not be removed before."""
    ctx = ctx.retire()
    fresh = tuple(former.model_copy(update={"failures": 0, "retry_at": None}) for former in ctx.status.superseded)
    return ctx.with_status(superseded=fresh).with_op(deadline=ctx.now + ctx.settings.dispose_timeout)


def _left(ctx: Context) -> tuple[tuple[Superseded, ...], str]:
    """Incarnations whose checkpoints are still there, in the order to try them, and why the last attempt failed, if it did.

    One that could not be removed goes to the end: the next one may be in a store that answers.
    """
    left, last = disposable(ctx.status), ctx.seen.last
    if not left or last is None or last.action != "DisposeJobStorage":
        return left, ""
    if last.ok:
        return left[1:], ""
    failed = left[0].model_copy(update={"failures": left[0].failures + 1})
    return tuple(sorted((*left[1:], failed), key=lambda former: former.failures)), last.message or last.code


def _where(ctx: Context, left: tuple[Superseded, ...]) -> str:
    def folder(former: Superseded) -> str:
        specs = disposal_specs(ctx, former.revision)
        return f"{specs[0].storage.checkpoints}/{former.job_id}" if specs else f"the folder {former.job_id}"

    more = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
    return f"checkpoints in {', '.join(folder(former) for former in left[:NAMED])}{more}"
