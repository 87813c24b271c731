"""Bring the pods of a new revision up beside those that run, so that the output stands still for seconds only.

Most of an upgrade's gap is the start of processes: pods, JVMs, Python workers. None of that needs the job's state. So the new
incarnation's pods are made while the old one runs. Their master *stands by*: it claims nothing, reads and writes nothing, until
the record `release` in its folder says where its state comes from.

    Prepare    the Deployments get the new template, with a rollout that removes no pod: the new ones come beside the old
    Stop, Seal as ever
    Teardown   the old job has ended with its savepoint: it is fenced off. Its pods are not waited for: what they write
               never counts
    Start      the same Deployments, applied as ever (Recreate): the old pods go, the new ones stay
    Watch      the new incarnation is the one that runs; then it is released

Whenever something is not as it should be (no room, an image that does not know how to stand by, a stop without a savepoint, a
fence that cannot be had, an edit taken back), the operation forgets its standby and goes the ordinary way: all pods away, then new
ones. What stands by was never released, so it has done nothing. While the job runs on, what nobody waits for any more is removed:
the Deployments are applied again as those of what runs (`put_back` where the operation is given up, `let_nothing_stand` where it goes on).

**The numbers of pods stay what they are from Prepare to Start.** To Kubernetes a changed number is an event of its own, which comes
before any rollout: a Deployment with pods of one template gives it to these, so that pods of what runs would go; one that
recreates and has pods of two does nothing at all any more. So nothing stands by if the new revision takes another number of
pods, and an edit that comes meanwhile is a live rescale afterwards.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.api.status import Restore
from penstock_operator.reconcile.decide.actions import ApplyPods, FenceIncarnation, ReleaseIncarnation, StandBy
from penstock_operator.reconcile.decide.refusals import explain
from penstock_operator.resources.incarnation import Incarnation, other_door, worker_count

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision

PATIENCE = timedelta(minutes=3)
"""How long pods may take to come up beside those that run, which goes on meanwhile: images may have to be pulled. And how long they stand
by for a job that nobody can ask to stop."""
END_PATIENCE = timedelta(seconds=20)
"""How long a job whose savepoint is complete may take to come to its end: it commits, and closes its functions."""


def prepare(ctx: Context) -> Decision:
    """Wait until what stands by is up; not for long, and not if it is in trouble."""
    op, running = ctx.op, ctx.status.running
    spec = ctx.revision_spec(op.target_revision)
    if running is None or spec is None or not (op.standby or _is_of_use(ctx, spec)):
        return ctx.advance(standby=None)
    if op.standby is None:
        ctx = ctx.with_op(standby=ctx.new_job_id(op.id), deadline=ctx.now + PATIENCE)
    beside, desired = _incarnation(ctx), ctx.spec or spec
    before = ctx.running_incarnation
    workers = pods_there(ctx) or worker_count(spec, desired, running.parallelism)
    if before is None or beside is None:
        return ctx.advance(standby=None)
    why = _why_not(ctx)
    if why:
        ctx = ctx.tell("StandbyGivenUp", f"{why}. The upgrade goes on without pods that stand by")
        return ctx.advance(standby=None)
    if not _is_made(ctx):
        return ctx.act(StandBy(before, beside, desired, workers), "starting the new pods beside those that run")
    up = [p for p in ctx.seen.standby if p.role == "worker" and p.ready and not p.terminating]
    if len(up) >= workers and any(p.role == "master" and p.started for p in ctx.seen.standby):
        return ctx.tell("StandbyReady", f"the pods of {op.target_revision} stand by").advance()
    return ctx.wait("waiting for the new pods to come up beside those that run")


def _is_of_use(ctx: Context, target: FlinkJobSpec) -> bool:
    """The job will be stopped with a savepoint, and its Deployments can be put back as they are."""
    spec, running, seen = ctx.spec, ctx.status.running, ctx.seen
    if spec is None or running is None or not spec.upgrade.warm_start or spec.job.upgrade_mode != "savepoint":
        return False
    pair = (seen.master, seen.worker)
    can_be_put_back = all(d is not None and d.same_made and not d.deleting and d.replicas > 0 for d in pair)
    same_size = running.parallelism == min(spec.job.parallelism, spec.job.max_parallelism)
    same_size = same_size and pods_there(ctx) == worker_count(target, spec, running.parallelism)
    return can_be_put_back and same_size and seen.engine.running and seen.engine.job_id == running.job_id


def _why_not(ctx: Context) -> str:
    """Why it is no use to wait for the pods; empty: it is."""
    failure = ctx.failed_action("StandBy")
    if failure is not None:
        return explain(failure)
    trouble = next((p.trouble for p in ctx.seen.standby if p.trouble is not None), ctx.seen.refusal)
    if trouble is not None:
        return str(trouble)
    ended = next((p for p in ctx.seen.standby if p.restarts or p.over), None)
    if ended is not None:
        return f"{ended.name}, which was to stand by, has ended ({ended.last_end or 'no reason given'})"
    return f"the new pods have not come up within {PATIENCE}" if ctx.past_deadline else ""


def _is_made(ctx: Context) -> bool:
    pair = (ctx.seen.master, ctx.seen.worker)
    return all(d is not None and d.standby and d.job_id == ctx.op.standby for d in pair)


def _incarnation(ctx: Context) -> Incarnation | None:
    op, running = ctx.op, ctx.status.running
    spec = ctx.revision_spec(op.target_revision)
    if spec is None or running is None or op.standby is None or op.target_revision is None:
        return None
    allowed = (ctx.spec or spec).job.allow_non_restored_state
    nowhere = Restore(kind="Fresh", reason="it is not released yet")
    return Incarnation(
        op.target_revision,
        spec,
        op.standby,
        nowhere,
        running.parallelism,
        allowed,
        warm=True,
        door=other_door(running.door),
    )


def may_take_over(ctx: Context) -> bool:
    """What stands by may start although the old pods are still there, once their job is at rest and they are fenced off."""
    op, spec = ctx.op, ctx.spec
    if (
        op.standby is None
        or spec is None
        or spec.job.state == "suspended"
        or ctx.desired_revision != op.target_revision
    ):
        return False
    path = op.restore.path if op.restore else None
    own = bool(path and op.target_directory and path.startswith(f"{op.target_directory}/"))
    return own and _is_made(ctx) and (op.fenced or _is_at_rest(ctx) or ctx.now - op.step_since < END_PATIENCE)


def _is_at_rest(ctx: Context) -> bool:
    """The old job does nothing any more. A master that was fenced off is SUSPENDED."""
    running, engine = ctx.status.running, ctx.seen.engine
    return running is not None and engine.job_id == running.job_id and engine.state in ("FINISHED", "SUSPENDED")


def fence_off(ctx: Context) -> Decision | None:
    """In place of taking the old pods away. None: it cannot be done, so that they have to go first."""
    running, last = ctx.status.running, ctx.seen.last
    if running is None:
        return None
    if not _is_at_rest(ctx):
        return ctx.wait("waiting for the job to come to its end", after=ctx.settings.prompt)
    if last is None or last.action != "FenceIncarnation":
        return ctx.act(FenceIncarnation(running.job_id), "making sure that the former incarnation writes no more")
    return ctx.with_op(fenced=True).done() if last.ok else None


def let_go(ctx: Context) -> Decision | None:
    """Release what stands by, once it is the incarnation that runs. None: there is nothing to release (any more)."""
    op, running, last = ctx.op, ctx.status.running, ctx.seen.last
    if running is None or not running.warm or op.standby != running.job_id or op.released:
        return None
    if last is not None and last.action == "ReleaseIncarnation":
        return ctx.with_op(released=True).done() if last.ok else None
    return ctx.act(ReleaseIncarnation(running.job_id, running.restored_from.path or ""), "releasing what stood by")


def put_back(ctx: Context) -> Decision | None:
    """Remove what an operation has left standing by that was given up. None: nothing of the kind is there."""
    removal = _removal(ctx)
    if removal is None:
        return None
    if ctx.failed_action("ApplyPods") is not None:
        return ctx.done(after=ctx.settings.backoff_first)
    return ctx.done(removal)


def let_nothing_stand(ctx: Context) -> Decision | None:
    """Before the job is asked to stop: what it will not be replaced by is removed, and what stands by is not kept for a
    savepoint that fails again and again, or a job that is not RUNNING. None: go on.

    A removal that is refused keeps nobody from stopping the job, which takes all pods away.
    """
    op = ctx.op
    if op.kind != "Upgrade":
        return None
    overdue = ctx.now - op.step_since >= PATIENCE
    if op.standby is not None and (ctx.lasting or overdue):
        why = "the savepoint has failed again" if ctx.lasting else f"the job could not be stopped within {PATIENCE}"
        ctx = ctx.tell("StandbyGivenUp", f"{why}. The upgrade goes on without pods that stand by")
        return ctx.with_op(standby=None).done()
    removal = _removal(ctx) if op.standby is None else None
    if removal is None or ctx.failed_action("ApplyPods") is not None:
        return None
    return ctx.act(removal, "removing the pods that stood by")


def _removal(ctx: Context) -> ApplyPods | None:
    pair = (ctx.seen.master, ctx.seen.worker)
    left = [d for d in pair if d is not None and d.standby and not d.deleting]
    incarnation, desired = ctx.running_incarnation, ctx.spec or ctx.effective_spec
    if not left or incarnation is None or desired is None:
        return None
    return ApplyPods(incarnation, desired, pods_there(ctx) or ctx.running_workers(incarnation.parallelism))


def pods_there(ctx: Context) -> int:
    """How many worker pods the Deployment asks for."""
    worker = ctx.seen.worker
    return worker.replicas if worker is not None and not worker.deleting else 0
