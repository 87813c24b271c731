"""Deletion. It always ends: whatever it waits for has a deadline, after which it is said in an event and left.

A savepoint is taken only if the spec asks for it and the job runs. The pods are waited for, because a new FlinkJob of
the same name must not meet them. Then the object goes, and Kubernetes removes what it owned.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.reconcile.plan import DisposeJobStorage, RemoveFinalizer
from penstock_operator.reconcile.steps.shared import effective_spec, failed_action
from penstock_operator.reconcile.steps.stop import ask_for_savepoint, seal, stop, teardown

if TYPE_CHECKING:
    from penstock_operator.reconcile.context import Context
    from penstock_operator.reconcile.plan import Decision

DISPOSE_TIMEOUT = timedelta(minutes=2)
ATTEMPTS = 3


def delete(ctx: Context) -> Decision:
    """One pass over a FlinkJob that is being deleted."""
    op, spec = ctx.op, effective_spec(ctx)
    overdue = spec is None or ctx.now - op.started_at >= spec.deletion.timeout
    if op.step in ("Stop", "Seal") and overdue:
        ctx = ctx.tell("DeletedWithoutSavepoint", f"no savepoint in time: {op.message}; deletion goes on", warning=True)
        return ctx.advance("Teardown")
    if op.step == "Stop" and op.trigger_id is None and (op.retry_at is None or ctx.now >= op.retry_at):
        if ctx.seen.engine.running:
            return ask_for_savepoint(ctx)
        ctx = ctx.tell("DeletedWithoutSavepoint", "the job is not RUNNING, so no savepoint can be taken", warning=True)
        return ctx.advance("Teardown")
    if op.step == "Teardown" and overdue and ctx.seen.replicas == 0:
        if ctx.seen.left:
            ctx = ctx.tell(
                "PodsAbandoned", f"{len(ctx.seen.left)} pods did not go in time; deletion goes on", warning=True
            )
        return ctx.advance(deadline=ctx.now + DISPOSE_TIMEOUT)
    steps = {"Stop": stop, "Seal": seal, "Teardown": teardown}
    return steps.get(op.step, dispose)(ctx)


def dispose(ctx: Context) -> Decision:
    """Delete the checkpoints if the spec says so; then let the object go, whatever happened."""
    spec, op, last = effective_spec(ctx), ctx.op, ctx.seen.last
    if spec is None or spec.deletion.storage != "Delete" or ctx.past_deadline:
        return ctx.act(RemoveFinalizer(), "letting the FlinkJob go")
    done = last is not None and last.action == "DisposeJobStorage" and last.ok
    ctx = ctx.retire()
    left = ctx.status.superseded[1:] if done else ctx.status.superseded
    ctx = ctx.with_status(superseded=left, running=None)
    if not left:
        return ctx.act(RemoveFinalizer(), "letting the FlinkJob go")
    failure = failed_action(ctx, "DisposeJobStorage")
    if failure is not None and op.attempt >= ATTEMPTS:
        ctx = ctx.tell("StorageKept", f"checkpoints could not be deleted and stay: {failure.message}", warning=True)
        return ctx.act(RemoveFinalizer())
    if failure is not None:
        return ctx.with_op(attempt=op.attempt + 1).wait(f"deleting checkpoints: {failure.message}")
    return ctx.act(DisposeJobStorage(left[0].job_id, left[0].revision), "deleting checkpoints")
