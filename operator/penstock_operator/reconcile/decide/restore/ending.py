"""Whether a job is at its end, and how long one that is CANCELLING, FAILING or SUSPENDED is waited for. Pure.

It ends by itself in a moment; the engine gives its tasks a time and then ends them. What it cannot end, such as a master
that hangs in a call that never returns, is ended with its pods: the job goes on from the newest complete checkpoint, and
nothing that came after that was committed.

A master is SUSPENDED when another one has taken the job over from it. It ends by itself after a minute (exit code 75), its container
is started again, and takes over in turn if nobody stands in its way. If it does not end, its pod is deleted. The incarnation stays
the same, so that its folder on storage still decides between it and whoever fenced it off.

A job that is FINISHED with input left was stopped: by the operator, which knows of it, or by a person, which is the end of the job. But
one that was adopted (`adoption`) may be stopped by an operation that was lost with its status. That was asked for before, and the engine
is done with a savepoint long before `UNASKED_WITHIN`; such a job has not come to its end.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.api.types import format_duration
from penstock_operator.reconcile.decide.actions import RestartMaster

if TYPE_CHECKING:
    from datetime import datetime

    from penstock_operator.reconcile.decide.actions import Decision
    from penstock_operator.reconcile.decide.context import Context

UNASKED_WITHIN = timedelta(hours=1)
"""A stop that ends no later than this after a job was adopted may have been asked for before."""


def is_down(ctx: Context) -> bool:
    """Nothing runs that could be changed: the job has ended or does not come to its end, or its master is gone."""
    running, master, engine = ctx.status.running, ctx.seen.master, ctx.seen.engine
    if running is None or running.failed_at is not None or master is None or master.replicas == 0:
        return True
    return end_overdue(ctx) or suspended_overdue(ctx) or (engine.terminal and engine.job_id == running.job_id)


def stopped_unasked(ctx: Context) -> bool:
    """The job has been stopped by an operation that was lost with its status; what the spec wants is another matter."""
    running, engine = ctx.status.running, ctx.seen.engine
    if running is None or running.adopted_at is None or running.finished_at is not None:
        return False
    if engine.job_id != running.job_id or engine.state != "FINISHED" or engine.end_of_input:
        return False
    return (engine.checkpoints.latest_at or ctx.now) - running.adopted_at <= UNASKED_WITHIN


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


def suspended_overdue(ctx: Context) -> bool:
    """The master that runs has been fenced off, and has not ended in time; a pod that was just made has its time, too."""
    status, running, engine = ctx.status, ctx.status.running, ctx.seen.engine
    if running is None or not engine.suspended or engine.job_id != running.job_id or status.job_state != engine.state:
        return False
    made = [p.created for p in ctx.seen.pods_of("master") if p.created is not None]
    since = max([status.job_state_since or ctx.now, running.started_at, *made])
    return ctx.now - since >= ctx.settings.suspended_timeout


def restart_master(ctx: Context) -> Decision:
    """End a master that was fenced off and does not end."""
    names = tuple(p.name for p in ctx.seen.pods_of("master") if not p.terminating)
    text = (
        f"the master has been SUSPENDED for {format_duration(ctx.settings.suspended_timeout)} and does not end; its pod is deleted, and "
        "another one goes on from the newest checkpoint"
    )
    return ctx.tell("MasterRestarted", text, warning=True, key=f"restarted/{'/'.join(names)}").done(
        RestartMaster(names)
    )
