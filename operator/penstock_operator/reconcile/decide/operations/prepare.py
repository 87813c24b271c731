"""The warm start of a new revision: its pods start next to the running pods, so that the output only stops for
seconds.

Most of an upgrade's downtime is the start of processes: pods, JVMs, Python workers. They can start without the job's
state. So the new incarnation's pods are created while the old incarnation runs. Their master is *on standby*: it
claims, reads and writes nothing until the record `release` in its folder contains the source of its state. The steps
are:

- Prepare: the Deployments get the new template, with a rollout that removes no pod. The new pods start next to the old
  pods.
- Stop and Seal: the same as without standby pods.
- Teardown: the old job has ended with its savepoint and is fenced. Its pods may still run, but their later writes never count.
- Start: the same Deployments are applied with the strategy Recreate. The old pods are removed, and the new pods remain.
- Watch: the new incarnation becomes the running incarnation, and is then released.

If a problem occurs, the operation drops its standby pods and continues the ordinary way: it removes all pods, then
creates new pods. Such problems are missing resources, an image without this feature, a stop without a savepoint, a
failed fence, or a reverted edit. The pods on standby were never released, so they have done nothing. If the job
continues to run, superfluous standby pods are removed: the Deployments of the running incarnation are applied again.
`remove_abandoned_standby` does this after an operation is given up, and `remove_superfluous_standby` during an
operation.

**The number of pods must not change between Prepare and Start.** Kubernetes applies a changed number before it starts a
rollout. If all pods of a Deployment have one template, Kubernetes would remove running pods. If a Deployment has the
strategy Recreate and pods of two templates, its rollout would stop. So a revision with another number of pods gets no
standby pods. If an edit changes the number after Prepare, a live rescale follows.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.api.status.snapshots import Restore
from penstock_operator.reconcile.decide.actions import ApplyPods, CreateStandby, FenceIncarnation, ReleaseIncarnation
from penstock_operator.reconcile.decide.refusals import explain
from penstock_operator.reconcile.decide.restore.beginning import waits_for_release
from penstock_operator.resources.incarnation import Incarnation, other_service_suffix, worker_count
from penstock_operator.resources.memory import with_worker_memory

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision

PATIENCE = timedelta(minutes=3)
"""Timeout for the start of the standby pods, while the job still runs. Images may have to be pulled.

It is also the maximum time that the pods are on standby while the operator cannot request the stop of the job.
"""
RELEASE_PATIENCE = timedelta(seconds=10)
"""Time in which the release of a first deployment must succeed. After that, its pods start again without a release."""
END_PATIENCE = timedelta(seconds=20)
"""Time within which a job with a complete savepoint must end. Before its end, the job commits its output and closes its
functions.
"""


def prepare(ctx: Context) -> Decision:
    """Wait until the standby pods are ready. Stop waiting after a timeout, or if they have a problem."""
    op, running = ctx.op, ctx.status.running
    spec = ctx.revision_spec(op.target_revision)
    if running is None or spec is None or not (op.standby or _is_useful(ctx, spec)):
        return ctx.advance(standby=None)
    if op.standby is None:
        ctx = ctx.with_op(standby=ctx.new_job_id(op.id), deadline=ctx.now + PATIENCE)
    beside, desired = _incarnation(ctx), ctx.spec or spec
    before = ctx.running_incarnation
    workers = requested_workers(ctx) or worker_count(spec, desired, running.parallelism)
    if before is None or beside is None:
        return ctx.advance(standby=None)
    reason = _why_not(ctx)
    if reason:
        ctx = ctx.with_event("StandbyGivenUp", f"{reason}. The upgrade continues without standby pods")
        return ctx.advance(standby=None)
    if not _exists(ctx):
        return ctx.act(CreateStandby(before, beside, desired, workers), "starting the new pods beside the running ones")
    up = [p for p in ctx.seen.standby if p.role == "worker" and p.ready and not p.terminating]
    if len(up) >= workers and any(p.role == "master" and p.started for p in ctx.seen.standby):
        return ctx.with_event("StandbyReady", f"the pods of {op.target_revision} are on standby").advance()
    return ctx.wait("waiting for the new pods to start beside the running ones")


def _is_useful(ctx: Context, target: FlinkJobSpec) -> bool:
    """Return whether the job will be stopped with a savepoint, and its Deployments can be restored unchanged."""
    spec, running, seen = ctx.spec, ctx.status.running, ctx.seen
    if spec is None or running is None or not spec.upgrade.warm_start or spec.job.upgrade_mode != "savepoint":
        return False
    pair = (seen.master, seen.worker)
    can_be_restored = all(d is not None and d.same_made and not d.deleting and d.replicas > 0 for d in pair)
    same_size = running.parallelism == min(ctx.first_parallelism(spec), spec.job.max_parallelism)
    same_size = same_size and requested_workers(ctx) == worker_count(target, spec, running.parallelism)
    return can_be_restored and same_size and seen.engine.running and seen.engine.job_id == running.job_id


def _why_not(ctx: Context) -> str:
    """Return the reason why it is useless to wait for the standby pods, or an empty string."""
    failure = ctx.failed_action("CreateStandby")
    if failure is not None:
        return explain(failure)
    trouble = next((p.trouble for p in ctx.seen.standby if p.trouble is not None), ctx.seen.refusal)
    if trouble is not None:
        return str(trouble)
    ended = next((p for p in ctx.seen.standby if p.restarts or p.over), None)
    if ended is not None:
        return f"the standby pod {ended.name} has ended ({ended.last_end or 'no reason given'})"
    return f"the new pods have not started within {PATIENCE}" if ctx.past_deadline else ""


def _exists(ctx: Context) -> bool:
    pair = (ctx.seen.master, ctx.seen.worker)
    return all(d is not None and d.standby and d.job_id == ctx.op.standby for d in pair)


def _incarnation(ctx: Context) -> Incarnation | None:
    op, running = ctx.op, ctx.status.running
    spec = ctx.revision_spec(op.target_revision)
    if spec is None or running is None or op.standby is None or op.target_revision is None:
        return None
    allowed = (ctx.spec or spec).job.allow_non_restored_state
    no_restore = Restore(kind="Fresh", reason="it is not released yet")
    return Incarnation(
        op.target_revision,
        with_worker_memory(spec, op.worker_memory),
        op.standby,
        no_restore,
        running.parallelism,
        allowed,
        warm=True,
        service_suffix=other_service_suffix(running.service_suffix),
    )


def may_take_over(ctx: Context) -> bool:
    """Return whether the standby incarnation may start before the old pods are gone. The old job must have ended and
    must be fenced.
    """
    op, spec = ctx.op, ctx.spec
    if (
        op.standby is None
        or spec is None
        or spec.job.state == "suspended"
        or ctx.desired_revision != op.target_revision
    ):
        return False
    path = op.restore.path if op.restore else None
    is_of_operation = bool(path and op.target_directory and path.startswith(f"{op.target_directory}/"))
    return (
        is_of_operation and _exists(ctx) and (op.fenced or _is_at_rest(ctx) or ctx.now - op.step_since < END_PATIENCE)
    )


def _is_at_rest(ctx: Context) -> bool:
    """Return whether the old job has ended. A fenced master reports the state SUSPENDED."""
    running, engine = ctx.status.running, ctx.seen.engine
    return running is not None and engine.job_id == running.job_id and engine.state in ("FINISHED", "SUSPENDED")


def fence_former_incarnation(ctx: Context) -> Decision | None:
    """Fence the old incarnation instead of removing its pods. Return None if this is impossible, so that the pods
    must be removed first.
    """
    running, last = ctx.status.running, ctx.seen.last
    if running is None:
        return None
    if not _is_at_rest(ctx):
        return ctx.wait("waiting until the job ends", after=ctx.settings.prompt)
    if last is None or last.action != "FenceIncarnation":
        return ctx.act(
            FenceIncarnation(running.job_id), "fencing off the former incarnation, so that it writes nothing more"
        )
    return ctx.with_op(fenced=True).done() if last.ok else None


def release_standby(ctx: Context) -> Decision | None:
    """Release the standby incarnation when it has become the running incarnation. Return None if nothing is to be
    released."""
    op, running, last = ctx.op, ctx.status.running, ctx.seen.last
    if running is None or op.released:
        return None
    if not running.warm:
        return _start_without_release(ctx)
    if op.standby != running.job_id:
        return None
    if last is not None and last.action == "ReleaseIncarnation":
        if not last.ok and op.kind == "Deploy" and ctx.now - op.step_since >= RELEASE_PATIENCE:
            text = f"{last.message}. The operator starts the pods again, which then need no release"
            ctx = ctx.with_event("NotReleased", text, warning=True)
            return ctx.with_status(running=running.model_copy(update={"warm": False, "checks": False})).done()
        return ctx.with_op(released=True).done() if last.ok else None
    return ctx.act(ReleaseIncarnation(running.job_id, running.restored_from.path or ""), "releasing the standby pods")


def release_adopted(ctx: Context) -> Decision | None:
    """Release an adopted first deployment whose release was lost with the status. Return None if nothing is to be released.

    Such a master proves that no earlier state exists. It also runs only a program that it has checked.
    """
    running, master = ctx.status.running, ctx.seen.master
    if running is None or master is None or not master.checks or not waits_for_release(ctx):
        return None
    if ctx.failed_action("ReleaseIncarnation") is not None:
        return ctx.done(after=ctx.settings.backoff_first)
    return ctx.done(ReleaseIncarnation(running.job_id, ""))


def _start_without_release(ctx: Context) -> Decision | None:
    """Start the master of a first deployment again, so that it no longer waits for a release that the operator could
    not write. Return None if the master does not wait for a release. The new master has the same job id. So it
    continues from a checkpoint if the release was written after all.
    """
    master, incarnation, desired = ctx.seen.master, ctx.running_incarnation, ctx.spec or ctx.effective_spec
    if ctx.op.kind != "Deploy" or master is None or not master.warm or incarnation is None or desired is None:
        return None
    if ctx.failed_action("ApplyPods") is not None:
        return None
    workers = requested_workers(ctx) or ctx.running_workers(incarnation.parallelism)
    return ctx.act(ApplyPods(incarnation, desired, workers), "starting the pods without a release")


def remove_abandoned_standby(ctx: Context) -> Decision | None:
    """Remove the standby pods of an operation that was given up. Return None if none exist."""
    removal = _removal(ctx)
    if removal is None:
        return None
    if ctx.failed_action("ApplyPods") is not None:
        return ctx.done(after=ctx.settings.backoff_first)
    return ctx.done(removal)


def remove_superfluous_standby(ctx: Context) -> Decision | None:
    """Remove superfluous standby pods before the job is requested to stop. Return None to continue.

    Standby pods are also removed if the savepoint fails repeatedly, or if the job is not RUNNING for too long. If the
    removal is refused, the operation continues, because the stop of the job removes all pods.
    """
    op = ctx.op
    if op.kind != "Upgrade":
        return None
    overdue = ctx.now - op.step_since >= PATIENCE
    if op.standby is not None and (ctx.reported_failure or overdue):
        reason = (
            "the savepoint has failed again"
            if ctx.reported_failure
            else f"the job could not be stopped within {PATIENCE}"
        )
        ctx = ctx.with_event("StandbyGivenUp", f"{reason}. The upgrade continues without standby pods")
        return ctx.with_op(standby=None).done()
    removal = _removal(ctx) if op.standby is None else None
    if removal is None or ctx.failed_action("ApplyPods") is not None:
        return None
    return ctx.act(removal, "removing the standby pods")


def _removal(ctx: Context) -> ApplyPods | None:
    pair = (ctx.seen.master, ctx.seen.worker)
    standbys = [d for d in pair if d is not None and d.standby and not d.deleting]
    incarnation, desired = ctx.running_incarnation, ctx.spec or ctx.effective_spec
    if not standbys or incarnation is None or desired is None:
        return None
    return ApplyPods(incarnation, desired, requested_workers(ctx) or ctx.running_workers(incarnation.parallelism))


def requested_workers(ctx: Context) -> int:
    """Return the number of worker pods that the Deployment requests."""
    worker = ctx.seen.worker
    return worker.replicas if worker is not None and not worker.deleting else 0
