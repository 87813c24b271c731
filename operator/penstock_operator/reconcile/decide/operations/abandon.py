"""When an operation is given up because the spec asks for something else by now. Pure.

Before its point of no return: until the engine has been asked for something that cannot be taken back, and while a new
revision is only being watched. What waits for a person can be given up although the job was stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.reconcile.decide.operations.begin import redeploy_wanted
from penstock_operator.reconcile.decide.refusals import REFUSALS
from penstock_operator.reconcile.decide.restore.predecessor import source_of

if TYPE_CHECKING:
    from penstock_operator.reconcile.decide.context import Context

_PERSON_DECIDES = frozenset({("Teardown", "StateLost"), ("Seal", "SnapshotTorn")})
"""Where an operation waits for a person although the job was stopped: what is decided then is another operation."""


def out_of_date(ctx: Context) -> bool:
    """The operation is not what the spec asks for now, and can still be given up without harm."""
    op, spec = ctx.op, ctx.spec
    early = op.step in ("Verify", "Check", "Prepare", "AddWorkers") or (
        op.step in ("Stop", "Rescale") and op.trigger_id is None
    )
    early = early or (op.step == "Start" and op.kind in ("Deploy", "Resume", "Redeploy") and op.blocked in REFUSALS)
    if _about_to_be_released(ctx):
        return False
    if spec is None:
        return op.step in ("Verify", "Check", "Prepare") and op.kind not in ("Recover", "Rollback")
    if (op.step, op.blocked) in _PERSON_DECIDES and op.kind != "Delete":
        return not ctx.is_rejected and (redeploy_wanted(ctx) or spec.job.upgrade_mode == "stateless")
    if op.kind == "Rescale":
        return early and (spec.job.state == "suspended" or _restart_wanted(ctx))
    if op.kind == "Suspend":
        return early and spec.job.state == "running"
    if op.kind in ("Recover", "Rollback", "Delete"):
        moved = spec.job.state == "suspended" or _restart_wanted(ctx)
        return moved and (op.step == "Check" or (op.step == "Watch" and not ctx.is_rejected))
    if not (early or op.step == "Watch"):
        return False
    return spec.job.state == "suspended" or _target_moved(ctx)


def _about_to_be_released(ctx: Context) -> bool:
    """The job is stopped, and what stood by for it waits for a word: it must have that before anything else is begun."""
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
