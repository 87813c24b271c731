"""The search for state of earlier FlinkJobs of the same name, at the first start of a FlinkJob. See
`decide.restore.predecessor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.reconcile.decide.actions import FencePredecessors
from penstock_operator.reconcile.decide.restore.committed_end import Lost, Unknown, origin
from penstock_operator.reconcile.decide.restore.predecessor import (
    EMPTY,
    LATEST,
    UnusedState,
    newest_snapshot,
    passed_over,
)

if TYPE_CHECKING:
    from penstock_operator.api.status.snapshots import Restore
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision
    from penstock_operator.storage.snapshots import Left, StoredSnapshot

_LOOKING = "looking for the state of earlier FlinkJobs of this name"


def look_back(ctx: Context) -> Context | Decision:
    """Return the context with the result of the search, or the decision that must come first."""
    op, left = ctx.op, ctx.seen.storage.left
    if op.kind != "Deploy" or op.looked_back:
        return ctx
    if op.source == LATEST:
        return _from_latest(ctx)
    if op.source == EMPTY:
        return ctx.with_op(looked_back=True)
    if left is None or op.restore is None:
        return ctx
    return _warned(ctx.with_op(looked_back=True), left)


def _warned(ctx: Context, left: Left) -> Context:
    op, found = ctx.op, newest_snapshot(left.snapshots)
    if op.restore is None or found is None or not _is_newer(ctx, found, op.restore):
        return ctx
    start = op.restore.model_copy(update={"passed_over": passed_over(found)})
    ctx = ctx.with_op(restore=start)
    return ctx.with_event(
        "StateLeft", str(UnusedState(passed_over(found), start)), warning=True, key=f"{op.id}/StateLeft"
    )


def _is_newer(ctx: Context, found: StoredSnapshot, start: Restore) -> bool:
    """Return whether the found snapshot is newer than the snapshot that the user named. If the user named no snapshot,
    every snapshot is newer.
    """
    if start.path is None:
        return True
    verdict = ctx.seen.storage.verdict(start.path)
    named = start.time or (verdict.time if verdict is not None else None)
    return found.path != start.path and (named is None or found.time is None or found.time > named)


def _from_latest(ctx: Context) -> Context | Decision:
    """Fence all incarnations that may still write. Then read storage again and start from the newest state."""
    op, storage, last = ctx.op, ctx.seen.storage, ctx.seen.last
    if storage.left is None:
        return ctx.wait_for_storage(_LOOKING)
    if storage.left.incarnations and not op.fenced:
        if last is None or last.action != "FencePredecessors":
            return ctx.act(
                FencePredecessors(storage.left.incarnations),
                "fencing off earlier FlinkJobs, so that they can write nothing",
            )
        if last.ok:
            return ctx.with_op(fenced=True).done()
        text = f"earlier FlinkJobs of this name cannot be fenced off: {last.message}. Give the operator write access to storage.checkpoints"
        return ctx.wait(text, blocked="StorageUnavailable", after=ctx.settings.backoff_first)
    start = origin(op.restore, named=False, own=False, running=None, storage=storage, of_name=True)
    if isinstance(start, Unknown):
        return ctx.wait_for_storage(_LOOKING)
    if isinstance(start, Lost):
        return ctx.wait(start.message, blocked="StateLost", after=ctx.settings.backoff_first)
    found = newest_snapshot(storage.left.snapshots)
    if found is not None:
        ctx = ctx.with_event(
            "StateTakenOver", f"continuing from {start.path}, the newest state of earlier FlinkJobs of this name"
        )
    return ctx.with_op(
        restore=start, looked_back=True, stop_job_id=found.job_id if found else None, blocked=None
    ).done()


def look_again(ctx: Context) -> Context:
    """Return the context with the result of the search, if the job started without a response of storage and storage
    responds now.
    """
    op, running, left = ctx.op, ctx.status.running, ctx.seen.storage.left
    if op.kind != "Deploy" or op.looked_back or left is None or running is None or op.restore is None:
        return ctx
    ctx = _warned(ctx.with_op(looked_back=True), left)
    return ctx.with_status(running=running.model_copy(update={"restored_from": ctx.op.restore}))


def with_unanswered_search_event(ctx: Context) -> Context:
    """Return the context with an event if storage has never responded. The job is stable, and the search is not
    repeated.
    """
    op = ctx.op
    if op.kind != "Deploy" or op.looked_back or op.source is None:
        return ctx
    text = (
        f"storage has not responded to the operator ({ctx.seen.storage.error or 'no reason is known'}). Earlier FlinkJobs of this name may "
        "have left state there. This FlinkJob was started without that state"
    )
    return ctx.with_event("StateUnknown", text, warning=True)
