"""The origin of an adopted incarnation, and whether it has completed a checkpoint. Pure functions.

The status had this information until it was lost. Three records still exist, and none of them is a guess:

    record                                                content
    ────────────────────────────────────────────────────  ────────────────────────────────────────────────────────
    the arguments of the master's Deployment              --restore PATH, --fresh, or nothing (--restore-latest,
                                                          --when-released)
    `release` in the folder of the incarnation            the snapshot that a master on standby must restore
    `leader/<e>.base`, `latest` and `result` in that      the snapshot that the master restored, whether a
    folder (docs/checkpoint-protocol.md)                  checkpoint was completed, whether the job has ended

The newest base is never deleted, and a master writes a base before it completes a checkpoint. So an incarnation without
a base has no checkpoint. The origin stays unknown if the records contradict each other or name nothing. It also stays
unknown if the job has ended, because a job removes checkpoints at its end. A job of unknown origin continues to run. It
is not started again before a user names the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.api.status.snapshots import Restore, named_restore

if TYPE_CHECKING:
    from penstock_operator.api.status.incarnation import Running
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.storage.snapshots import Beginning


def with_origin(ctx: Context) -> Context:
    """Return the context with the origin of the running incarnation in its status, if the origin was unknown and is
    found.
    """
    running, found = ctx.status.running, ctx.seen.storage.beginning
    if running is None or not running.origin_unknown:
        return ctx
    if _has_completed(ctx, running):
        return ctx.with_status(running=running.model_copy(update={"had_checkpoint": True, "origin_unknown": False}))
    origin = origin_of(running.restored_from, found) if found is not None else None
    if origin is None:
        return ctx
    return ctx.with_status(running=running.model_copy(update={"restored_from": origin, "origin_unknown": False}))


def origin_of(argument: Restore, found: Beginning) -> Restore | None:
    """Return the state from which an incarnation without a checkpoint was started, or None if it cannot be
    determined.

    Args:
        argument: the restore point in the arguments of its master. `Latest` means that the arguments have no restore
            point.
    """
    named: Restore | None = argument
    if argument.kind == "Latest":
        named = (
            None
            if found.released is None
            else named_restore(found.released, "its standby pods were released from this state")
        )
    if found.ended or found.completed:
        return None
    if not found.led:
        return named
    if named is None:
        return named_restore(found.path, "its master started from this state") if found.path else None
    return named if bool(named.path) == bool(found.path) else None


def waits_for_release(ctx: Context) -> bool:
    """Return whether the adopted master is on standby, and no record contains the source of its state."""
    running, found = ctx.status.running, ctx.seen.storage.beginning
    if running is None or found is None or not (running.origin_unknown and running.warm):
        return False
    return not found.led and found.released is None


def _has_completed(ctx: Context, running: Running) -> bool:
    status, seen = ctx.status, ctx.seen
    known = [seen.storage.newest, status.last_checkpoint, status.last_savepoint]
    by_master = seen.engine.job_id == running.job_id and seen.engine.checkpoints.completed > 0
    has_savepoint = any(s.made_by == running.job_id and s.state == "Completed" for s in seen.snapshots)
    found = seen.storage.beginning
    recorded = found is not None and found.completed
    return by_master or has_savepoint or recorded or any(p is not None and p.job_id == running.job_id for p in known)
