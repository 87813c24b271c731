"""The number of workers of a FlinkCluster that follows its jobs (`spec.worker.autoscaling`). Pure functions.

    the jobs                                     the operator
    ───────────────────────────────────────────  ──────────────────────────────────────────────────────────────────────
    need more slots than the workers have        adds workers; the jobs start or are rescaled when the slots are free
    have needed fewer workers for                removes workers that run no part of a job
    `scaleDownAfter`
    run on more workers than necessary           keeps the workers that run a part of a job
    need more workers than `max`                 reports it; the jobs wait for slots
    move to another revision, or the session     removes no worker
    does not respond

The slots that FlinkJobs need are known from their statuses before the jobs use them. Other programs of the session count
with the slots that they use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.api.flinkcluster import WorkerScaling
from penstock_operator.reconcile.observation import is_at

if TYPE_CHECKING:
    from penstock_operator.api.flinkcluster import FlinkClusterSpec
    from penstock_operator.session.context import ClusterContext


def with_workers(ctx: ClusterContext) -> ClusterContext:
    """Return the context with the number of workers for the slots that the jobs need."""
    spec = ctx.spec
    auto = spec.worker.autoscaling if spec is not None else None
    if spec is None or auto is None:
        return ctx if spec is None or ctx.status.scaling is None else ctx.with_status(scaling=None)
    before, slots = ctx.status.scaling, needed_slots(ctx)
    present = _present(ctx, auto.within_limits(spec.worker.replicas))
    needed = -(-slots // spec.worker.slots)
    wanted, spare = auto.within_limits(needed), None
    workers = max(present, wanted)
    if wanted < present:
        spare = before.spare_since if before is not None and before.spare_since is not None else ctx.now
        is_due = ctx.now - spare >= auto.scale_down_after
        workers = _kept(ctx, present, wanted, spec.worker.slots) if is_due else present
    ctx = _with_events(ctx, present, workers, slots)
    limited = needed > auto.max
    if limited:
        text = f"the jobs need {slots} slots on {needed} workers, but worker.autoscaling.max is {auto.max}; jobs wait for slots"
        ctx = ctx.with_event("WorkersLimited", text, warning=True, key=f"limited/{needed}/{ctx.now:%Y-%m-%dT%H}")
    state = WorkerScaling(workers=workers, slots_needed=slots, spare_since=spare, limited=limited)
    return ctx.with_status(scaling=state)


def _present(ctx: ClusterContext, of_spec: int) -> int:
    """Return the number of workers before the decision: that of the Deployment. So no busy worker is removed when the
    autoscaling begins. A decision to remove workers that was not executed is made again.
    """
    newest = max((r for r in ctx.revisions if r.digest == ctx.digest), key=lambda r: r.number, default=None)
    if newest is not None and newest.workers_wanted:
        return newest.workers_wanted
    if ctx.status.scaling is not None:
        return ctx.status.scaling.workers
    current = ctx.revision(ctx.status.revision)
    return of_spec if current is None or not current.workers_wanted else current.workers_wanted


def _with_events(ctx: ClusterContext, before: int, after: int, slots: int) -> ClusterContext:
    if before == after:
        return ctx
    reason = "AddingWorkers" if after > before else "RemovingWorkers"
    text = f"the jobs need {slots} slots; workers: {before} → {after}"
    return ctx.with_event(reason, text, key=f"{before}→{after}/{ctx.now:%Y-%m-%dT%H:%M}")


def needed_slots(ctx: ClusterContext) -> int:
    """Return the number of slots that all jobs need now. A job that moves needs its slots in the new revision."""
    return sum(job.slots for job in ctx.jobs) + (ctx.use.others if ctx.use is not None else 0)


def _kept(ctx: ClusterContext, present: int, wanted: int, slots_per_worker: int) -> int:
    """Return the number of workers to keep. A ReplicaSet removes pods that are not ready first, so all busy pods must be
    ready. No worker that runs a part of a job is removed, also if there are more than `max`.
    """
    if ctx.use is None or ctx.session is None or len(ctx.revisions) != 1:
        return present
    busy = [pod for pod in ctx.workers if any(is_at(one, pod.name, pod.ip) for one in ctx.use.busy)]
    used = ctx.session.slots - ctx.session.free_slots
    if len(busy) * slots_per_worker < used or not all(pod.ready for pod in busy):
        return present
    return min(present, max(wanted, len(busy)))


def workers_of(ctx: ClusterContext, spec: FlinkClusterSpec) -> int:
    """Return the number of workers of the newest revision."""
    scaling = ctx.status.scaling
    return spec.worker.replicas if scaling is None or spec.worker.autoscaling is None else scaling.workers
