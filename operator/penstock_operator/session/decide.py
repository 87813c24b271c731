"""The next step for one FlinkCluster: a pure function. The first row that matches applies:

    ──────────────────────────────────────────────────────────────────────────────────────────────
    being deleted                       │ wait for its jobs, as `deletion.jobs` requests; then delete all revisions
    no finalizer                        │ add it
    the spec is not valid               │ report it; the existing pods remain
    no revision of this spec exists     │ create one with the next number
    an object is missing or changed     │ apply the objects of its revision
    another number of workers           │ scale the Deployment (`workers`)
    the new revision is ready           │ make it the current one; jobs start in it from now on
    jobs run in a former revision       │ move one job after the other (`_moved`)
    no job runs in a former revision    │ delete the revision
    ──────────────────────────────────────────────────────────────────────────────────────────────

An upgrade never stops a pod in which a job runs. The pods of the new revision start next to the former ones. When all of
them are ready, the first job moves. The loop of the job stops it with a savepoint in the former revision, and starts it in
the new one. The check and the rollback are those of every upgrade. `status.moving` names the job whose turn it is. A job
that cannot be moved keeps running in the former revision, whose pods then remain. The status names the reason.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.api.flinkcluster import ClusterRevision, NotMoved
from penstock_operator.session.context import (
    AddFinalizer,
    ApplyRevision,
    ClusterDecision,
    CreateRevision,
    DeleteRevision,
    RemoveFinalizer,
    ScaleWorkers,
)
from penstock_operator.session.report import awaited, reported
from penstock_operator.session.workers import with_workers, workers_of

if TYPE_CHECKING:
    from penstock_operator.session.context import ClusterAction, ClusterContext, JobSeen, RevisionSeen

MOVE_PATIENCE = timedelta(minutes=10)
"""Time after which a job whose move has not started, or needs a user's action, lets the next job move."""
REASON_TEXT = 300
"""Maximum number of characters of a reason in `status.notMoved`."""
PODS_PATIENCE = timedelta(minutes=2)
"""Maximum time that the deletion of a cluster waits for the end of its pods."""


def decide(ctx: ClusterContext) -> ClusterDecision:
    """Return the next step, with the status for users."""
    ctx, action = _next(ctx)
    if ctx.failure:
        ctx = ctx.with_event("Refused", ctx.failure, warning=True)
        pause = ctx.settings.backoff_first
        return ClusterDecision(reported(ctx), action, ctx.events, pause)
    quiet = action is None
    return ClusterDecision(reported(ctx), action, ctx.events, _pause(ctx) if quiet else None)


def _pause(ctx: ClusterContext) -> timedelta:
    current = ctx.revision(ctx.status.revision)
    settled = len(ctx.revisions) == 1 and current is not None and current.is_ready and not ctx.is_deleting
    return ctx.settings.watch if settled else ctx.settings.progress


def _next(ctx: ClusterContext) -> tuple[ClusterContext, ClusterAction | None]:
    if ctx.is_deleting:
        return _deleting(ctx)
    if not ctx.has_finalizer:
        return ctx, AddFinalizer()
    ctx = _counted(ctx)
    if ctx.spec is None:
        return ctx, _repair(ctx)
    target = max((r for r in ctx.revisions if r.digest == ctx.digest), key=lambda r: r.number, default=None)
    if target is None:
        number = max([ctx.status.last_number, ctx.taken, *(r.number for r in ctx.revisions)]) + 1
        return ctx.with_status(last_number=number), CreateRevision(number)
    ctx = with_workers(_with_current(ctx, target))
    action = _repair(ctx) or _scaled(ctx)
    if action is not None:
        return ctx, action
    ctx = _moved(ctx)
    return ctx, _spare(ctx, target)


def _counted(ctx: ClusterContext) -> ClusterContext:
    """Return the context with the existing revisions in the status. A revision that is gone is not current any more."""
    known = tuple(
        ClusterRevision(number=r.number, digest=r.digest, jobs=sum(j.revision == r.number for j in ctx.jobs))
        for r in ctx.revisions
    )
    numbers = [r.number for r in known]
    current = ctx.status.revision if ctx.status.revision in numbers else None
    last = max([ctx.status.last_number, *numbers])
    return ctx.with_status(revisions=known, revision=current, last_number=last)


def _with_current(ctx: ClusterContext, target: RevisionSeen) -> ClusterContext:
    """Return the context with the revision in which jobs start: the target, as soon as it is ready. The first revision
    is current immediately.
    """
    before = ctx.status.revision
    if before == target.number:
        return ctx
    others_run = before is not None
    if others_run and not target.is_ready:
        return ctx
    if others_run:
        text = f"the pods of revision {target.number} are ready; jobs move to it one after another"
        ctx = ctx.with_event("RevisionReady", text, key=f"ready/{target.number}")
    return ctx.with_status(revision=target.number, moving=None, moving_since=None, not_moved=())


def _repair(ctx: ClusterContext) -> ClusterAction | None:
    """Return the action that applies the objects of a revision. The revision of the newest spec comes first, because an
    edit may correct what Kubernetes refuses in a former one. A refused revision does not delay the others.
    If the workers are autoscaled, only `_scaled` removes workers, because it marks those that are busy.
    """
    for revision in sorted(ctx.revisions, key=lambda r: r.digest != ctx.digest):
        if revision.flaw and revision.number not in ctx.refused:
            workers = revision.workers_wanted or 1
            if ctx.spec is not None and (revision.digest == ctx.digest or ctx.spec.worker.autoscaling is None):
                workers = workers_of(ctx, ctx.spec)
            if ctx.spec is not None and ctx.spec.worker.autoscaling is not None:
                workers = max(workers, revision.workers_wanted)
            return ApplyRevision(revision.number, workers)
    return None


def _scaled(ctx: ClusterContext) -> ClusterAction | None:
    wanted = workers_of(ctx, ctx.spec) if ctx.spec is not None else 0
    for revision in ctx.revisions:
        if wanted and revision.digest == ctx.digest and revision.workers_wanted != wanted and not ctx.failure:
            is_current = ctx.use is not None and revision.number == ctx.status.revision
            return ScaleWorkers(revision.number, wanted, ctx.use.busy if ctx.use and is_current else frozenset())
    return None


def _former(ctx: ClusterContext) -> list[JobSeen]:
    """Return the jobs that do not run in the current revision."""
    return sorted((j for j in ctx.jobs if j.revision not in (None, ctx.status.revision)), key=lambda j: j.name)


def _moved(ctx: ClusterContext) -> ClusterContext:
    """Return the context with the job that moves now. Only one job moves at a time."""
    jobs = {job.name: job for job in ctx.jobs}
    kept = tuple(n for n in ctx.status.not_moved if n.job in jobs and jobs[n.job].generation == n.generation)
    ctx = ctx.with_status(not_moved=kept)
    moving = jobs.get(ctx.status.moving or "")
    if moving is not None and not _has_moved(ctx, moving):
        reason = (_why_not_moved(ctx, moving) or "")[:REASON_TEXT] or None
        if reason is None:
            return ctx
        text = f"{moving.name} keeps running in revision {moving.revision}: {reason}. Edit the FlinkJob to try again"
        ctx = ctx.with_event(
            "JobNotMoved", text, warning=True, key=f"{moving.name}/{moving.generation}/{ctx.status.revision}"
        )
        entry = NotMoved(job=moving.name, generation=moving.generation, reason=reason)
        ctx = ctx.with_status(not_moved=(*ctx.status.not_moved, entry))
    elif moving is not None:
        ctx = ctx.with_event("JobMoved", f"{moving.name} runs in revision {moving.revision}")
    left_out = {n.job for n in ctx.status.not_moved}
    following = next((j for j in _former(ctx) if j.name not in left_out), None)
    if following is None:
        return ctx.with_status(moving=None, moving_since=None)
    text = f"{following.name} moves from revision {following.revision} to revision {ctx.status.revision}"
    ctx = ctx.with_event("JobMoves", text, key=f"{following.name}/{following.generation}/{ctx.status.revision}/moves")
    return ctx.with_status(moving=following.name, moving_since=ctx.now)


def _has_moved(ctx: ClusterContext, job: JobSeen) -> bool:
    return job.revision in (None, ctx.status.revision) and job.is_settled


def _why_not_moved(ctx: ClusterContext, job: JobSeen) -> str | None:
    """Return the reason why a job cannot be moved now, or None while its move is in progress."""
    since = ctx.status.moving_since or ctx.now
    if job.is_settled and job.rejected_at is not None and job.rejected_at >= since:
        return job.rejection
    if ctx.now - since < MOVE_PATIENCE or job.revision == ctx.status.revision:
        return None
    if job.is_settled:  # for example because its spec is not valid
        return f"its move has not started within {MOVE_PATIENCE.seconds // 60} minutes: {job.message}"
    return job.message if job.blocked else None


def _spare(ctx: ClusterContext, target: RevisionSeen) -> ClusterAction | None:
    """Return the action that deletes a revision in which no job runs. A job that moves may still return to its former
    revision.
    """
    needed = {target.number, ctx.status.revision, *(j.revision for j in ctx.jobs)}
    if ctx.status.moving is not None:
        return None
    return next((DeleteRevision(r.number) for r in ctx.revisions if r.number not in needed), None)


def _deleting(ctx: ClusterContext) -> tuple[ClusterContext, ClusterAction | None]:
    """Wait until no job uses the cluster, unless `deletion.jobs` is Force. Then delete the revisions, and wait for the end
    of the pods. The status and an event name what the operator waits for.
    """
    if not ctx.has_finalizer:
        return ctx, None
    ctx = _counted(ctx)
    if any(job.revision is not None for job in ctx.jobs) and ctx.deletes != "Force":
        return ctx.with_event("DeletionWaits", awaited(ctx), warning=True), _repair(ctx)
    if ctx.revisions:
        return ctx, None if ctx.failure else DeleteRevision(ctx.revisions[0].number)
    if ctx.pods and (ctx.empty_for is None or ctx.empty_for < PODS_PATIENCE):
        return ctx, None
    return ctx, RemoveFinalizer()
