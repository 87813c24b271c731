"""The progress of the job, from the master, storage and pods: state, restarts, workers, the newest checkpoint. Pure
functions.

The progress changes without a decision of the operator. If nothing else in the status has changed, the write can wait
(`writes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock_operator.api.status.snapshots import Checkpoint, Restore
from penstock_operator.reconcile.decide.health.causes import restarts_of

if TYPE_CHECKING:
    from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
    from penstock_operator.reconcile.decide.context import Context


def progressed(ctx: Context, status: FlinkJobStatus) -> FlinkJobStatus:
    """Return the status with the current progress of the job."""
    running, engine, stored = status.running, ctx.seen.engine, ctx.seen.storage.newest
    ended = running is not None and running.finished_at is not None
    if running is not None and stored is not None and stored.job_id == running.job_id:
        running = running.model_copy(update={"had_checkpoint": True})
    updates: dict[str, Any] = {
        "running": running,
        "job_id": running.job_id if running else None,
        "parallelism": running.parallelism
        if running
        else (ctx.first_parallelism(ctx.spec) if ctx.spec else status.parallelism),
        "label_selector": f"penstock.dev/job={ctx.subject.name},penstock.dev/role=worker",
        "workers": sum(p.ready and not p.terminating for p in ctx.seen.pods_of("worker")),
        "restarts": max(status.restarts, restarts_of(ctx, running)) if running else 0,
        "job_state": status.job_state if running else None,
        "job_state_since": status.job_state_since if running else None,
    }
    if running is not None and engine.reachable and engine.job_id == running.job_id:
        points = engine.checkpoints
        updates["job_state"] = engine.state
        if points.completed and not running.had_checkpoint:
            updates["running"] = running.model_copy(update={"had_checkpoint": True})
        if points.latest_path and points.latest_id is not None:
            newest = Checkpoint(
                path=points.latest_path, id=points.latest_id, job_id=running.job_id, time=points.latest_at
            )
            updates["last_checkpoint"] = newest
            if status.operation is None:
                updates["next_restore"] = Restore(
                    kind="Checkpoint",
                    path=newest.path,
                    checkpoint_id=newest.id,
                    time=newest.time,
                    reason="newest checkpoint",
                )
    elif not ended and (engine.absent or engine.silent_for > ctx.settings.silence):
        updates["job_state"] = None
    if updates["job_state"] != status.job_state:
        updates["job_state_since"] = ctx.now if updates["job_state"] else None
    return status.model_copy(update=updates)
