"""The rules for giving up an operation because the spec now requests something else. Pure functions.

An operation can be given up before its point of no return, which is the first request to the engine that cannot be
reverted. It can also be given up while a new revision is only being watched. An operation that waits for a user can
be given up although the job was stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.reconcile.decide.operations.begin import redeploy_wanted
from penstock_operator.reconcile.decide.refusals import CANNOT_START
from penstock_operator.reconcile.decide.restore.committed_end import FRESH_BY_WISH
from penstock_operator.reconcile.decide.restore.predecessor import source_of

if TYPE_CHECKING:
    from penstock_operator.reconcile.decide.context import Context

_PERSON_DECIDES = frozenset(
    {
        ("Teardown", "StateLost"),
        ("Seal", "SnapshotTorn"),
        ("Teardown", "StorageUnavailable"),
        ("Seal", "StorageUnavailable"),
    }
)
"""Step and reason of an operation that has stopped the job and waits for a user's decision. The decision requires
another operation, so the waiting operation can be given up.
"""


def out_of_date(ctx: Context) -> bool:
    """Return whether the spec no longer requests the operation, and the operation can still be given up without harm."""
    op, spec = ctx.op, ctx.spec
    early = op.step in ("Verify", "Check", "Prepare", "AddWorkers") or (
        op.step in ("Stop", "Rescale") and op.trigger_id is None
    )
    early = early or (op.step == "Start" and op.kind in ("Deploy", "Resume", "Redeploy") and op.blocked in CANNOT_START)
    if _about_to_be_released(ctx):
        return False
    if spec is None:
        return op.step in ("Verify", "Check", "Prepare") and op.kind not in ("Recover", "Rollback")
    if (op.step, op.blocked) in _PERSON_DECIDES and op.kind != "Delete":
        if op.kind == "Redeploy":  # the user has already decided; only another path is a new decision
            same = op.restore is not None and op.restore.path == spec.job.initial_savepoint_path
            return redeploy_wanted(ctx) and not same and not ctx.is_rejected
        decided = op.restore is not None and op.restore.reason == FRESH_BY_WISH.reason
        wish = redeploy_wanted(ctx) or spec.job.upgrade_mode == "stateless"
        return wish and not decided and not ctx.is_rejected
    if op.kind == "Rescale":
        early = early or (op.step == "RemoveWorkers" and op.blocked is not None)
        return early and (spec.job.state == "suspended" or _restart_wanted(ctx))
    if op.kind == "Suspend":
        return early and spec.job.state == "running"
    if op.kind in ("Recover", "Rollback", "Delete"):
        moved = spec.job.state == "suspended" or _restart_wanted(ctx)
        return moved and op.step in ("Check", "Watch") and op.kind != "Delete"
    if not (early or op.step == "Watch"):
        return False
    return spec.job.state == "suspended" or _target_moved(ctx)


def _about_to_be_released(ctx: Context) -> bool:
    """Return whether the job is stopped and the incarnation on standby waits for its release. Nothing else may start
    before the release.
    """
    op, running = ctx.op, ctx.status.running
    return op.step == "Watch" and op.standby is not None and not op.released and running is not None and running.warm


def _target_moved(ctx: Context) -> bool:
    op, spec = ctx.op, ctx.spec
    if spec is None:
        return False
    if op.target_revision != ctx.desired_revision:
        return True
    if op.kind in ("Upgrade", "Resume"):
        return redeploy_wanted(ctx)
    if op.source is not None:
        return op.step in ("Verify", "Check") and op.source != source_of(spec)
    other_source = op.restore is not None and spec.job.initial_savepoint_path != op.restore.path
    withdrawn = op.kind == "Redeploy" and not redeploy_wanted(ctx)
    return op.step in ("Verify", "Check") and (other_source or withdrawn)


def _restart_wanted(ctx: Context) -> bool:
    running = ctx.status.running
    return (
        running is not None
        and not ctx.is_rejected
        and (ctx.desired_revision != running.revision or redeploy_wanted(ctx))
    )
