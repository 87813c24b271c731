"""The wait for storage that a new incarnation cannot use. Pure functions.

Such a failure says nothing about the revision. The operation stays in its step, so that a rollback to the former
revision is still possible. The kubelet restarts a master that ends. The operator restarts a job that is FAILED: it
deletes the master's pod.

The failure counts as a failure of the revision if it lasts `settings.infrastructure_patience`, because the revision's
storage settings may be wrong. It counts immediately if `recovery` forbids a restart of the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.errors import StorageError
from penstock_operator.reconcile.decide.actions import RestartMaster
from penstock_operator.reconcile.decide.health.recovery import why_not_recovered

if TYPE_CHECKING:
    from datetime import timedelta

    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision
    from penstock_operator.reconcile.observation import Pod

STORAGE_FAILED = ("[STORAGE]", "[STORAGE_REFUSED]")
"""Codes of the engine at the start of an exception from checkpoint storage."""


def waited_out(ctx: Context, patience: timedelta) -> Decision | None:
    """Return the decision to wait for storage that the incarnation cannot use. Return None if storage has not failed, or
    has failed for too long.

    Args:
        patience: the time that the revision has after the outage to become stable.
    """
    op, running, engine = ctx.op, ctx.status.running, ctx.seen.engine
    if running is None or ctx.now - op.step_since >= ctx.settings.infrastructure_patience:
        return None
    ctx = ctx.with_op(deadline=ctx.now + patience)
    if engine.reachable and engine.job_id == running.job_id and engine.state == "FAILED":
        failed = op.blocked == StorageError.code or any(code in engine.exception for code in STORAGE_FAILED)
        may_restart = why_not_recovered(ctx, running) is None
        return _start_again(ctx, engine.exception or "the job is FAILED") if failed and may_restart else None
    pods = (p for p in ctx.seen.pods_of("master") if p.job_id == running.job_id)
    master = next((p for p in pods if _lacks_storage(ctx, p)), None)
    if master is None:
        return None
    return ctx.wait(_text(ctx, str(master.trouble) if master.trouble else master.last_end), blocked=StorageError.code)


def _lacks_storage(ctx: Context, master: Pod) -> bool:
    """Return whether a storage outage has ended the container of a master, and still lasts.

    Kubernetes reports the end of the container as long as the pod exists. The engine retries storage for at most
    `settings.storage_retry`. A container that has run longer has another problem, unless its engine reports the outage.
    """
    if not master.storage_failed or master.ready or master.terminating:
        return False
    since, engine = master.running_since, ctx.seen.engine
    if since is None or ctx.now - since < ctx.settings.storage_retry:
        return True
    reported = any(code in engine.exception for code in STORAGE_FAILED)
    return engine.reachable and engine.job_id == master.job_id and not engine.running and reported


def _start_again(ctx: Context, failure: str) -> Decision:
    """Delete the master's pod after a pause that increases with each attempt. The next master starts the job again."""
    op, status = ctx.op, ctx.status
    since = status.job_state_since if status.job_state == "FAILED" else None
    remaining = (since or ctx.now) + ctx.settings.backoff(op.attempt + 1) - ctx.now
    names = tuple(p.name for p in ctx.seen.pods_of("master") if not p.terminating)
    if remaining.total_seconds() > 0 or not names:
        after = min(max(remaining, ctx.settings.progress), ctx.settings.backoff_limit)
        return ctx.wait(_text(ctx, failure), blocked=StorageError.code, after=after)
    ctx = ctx.with_event(
        "MasterRestarted",
        f"the job failed because storage failed ({failure}); the operator starts it again",
        warning=True,
    )
    return ctx.with_op(attempt=op.attempt + 1).done(RestartMaster(names))


def _text(ctx: Context, failure: str) -> str:
    patience = ctx.settings.infrastructure_patience
    remedy = (
        f"Check the storage and the master's access to it. The operator gives up the revision if this lasts {patience}"
    )
    return f"the master cannot use checkpoint storage: {failure}. {remedy}"
