"""Whether a job is at its end, and how long one that is CANCELLING or FAILING is waited for. Pure.

It ends by itself in a moment; the engine gives its tasks a time and then ends them. What it cannot end, such as a master
that hangs in a call that never returns, is ended with its pods: the job goes on from the newest complete checkpoint, and
nothing that came after that was committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from penstock_operator.reconcile.context import Context


def is_down(ctx: Context) -> bool:
    """Nothing runs that could be changed: the job has ended or does not come to its end, or its master is gone."""
    running, master, engine = ctx.status.running, ctx.seen.master, ctx.seen.engine
    if running is None or master is None or master.replicas == 0:
        return True
    return end_overdue(ctx) or (engine.terminal and engine.job_id == running.job_id)


def end_deadline(ctx: Context) -> datetime:
    """When it is waited for no longer; only for a job that is ending."""
    status, running = ctx.status, ctx.status.running
    since = status.job_state_since if status.job_state == ctx.seen.engine.state else None
    begun = since or ctx.now
    if running is not None:
        begun = max(begun, running.started_at)
    return begun + ctx.settings.ending_timeout


def end_overdue(ctx: Context) -> bool:
    """The job that runs is ending, and has not ended in time."""
    running, engine = ctx.status.running, ctx.seen.engine
    ours = running is not None and engine.job_id == running.job_id
    return ours and engine.ending and ctx.now >= end_deadline(ctx)
