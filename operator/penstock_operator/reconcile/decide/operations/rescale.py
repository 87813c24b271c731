"""Change the parallelism of a job that goes on running.

Up: workers first, then the job. Down: the job first, then the workers. So there are slots for the job at every
moment, and an operator that dies in between leaves spare workers, never missing ones.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.reconcile.decide.actions import ApplyParallelism, Rescale, ScaleWorkers
from penstock_operator.reconcile.decide.refusals import explain
from penstock_operator.reconcile.decide.restore.stopping import is_down

if TYPE_CHECKING:
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision

BLIND_AFTER = timedelta(minutes=2)
"""Spare workers of a job that does not run are let go after that, whichever they are."""


def add_workers(ctx: Context) -> Decision:
    """Bring up the workers that the greater of both parallelisms needs, and wait for their slots."""
    if is_down(ctx):
        return _give_up(ctx)
    op, running, worker = ctx.op, ctx.status.running, ctx.seen.worker
    if running is None or worker is None or op.target_parallelism is None:
        return ctx.end("Abandoned", "there is nothing to rescale").done()
    needed = max(ctx.running_workers(running.parallelism), ctx.running_workers(op.target_parallelism))
    if worker.replicas < needed:
        failure = ctx.failed_action("ScaleWorkers")
        if failure is not None:
            return ctx.wait(explain(failure), blocked=failure.code, after=ctx.settings.backoff_first)
        return ctx.act(ScaleWorkers(needed), f"adding workers: {worker.replicas} → {needed}")
    if op.target_parallelism > running.parallelism and ctx.seen.engine.slots_total < op.target_parallelism:
        return _short_of_slots(ctx, op.target_parallelism)
    return ctx.advance(attempt=0)


def _give_up(ctx: Context) -> Decision:
    """First the job is brought back, and with the parallelism that is wished by then."""
    why = f"the job is {ctx.seen.engine.state or 'without its master'}, so that nothing can be rescaled"
    return ctx.tell("Abandoned", why).end("Abandoned", why).done()


def _short_of_slots(ctx: Context, target: int) -> Decision:
    message = f"waiting for slots: {ctx.seen.engine.slots_total} of {target}"
    trouble = next((p.trouble for p in ctx.seen.pods_of("worker") if p.trouble and not p.ready), None)
    if trouble is None and ctx.seen.worker is not None:
        trouble = ctx.seen.worker.trouble
    if trouble is None:
        return ctx.wait(message)
    running = ctx.status.running
    now = f"The job goes on with parallelism {running.parallelism}" if running else ""
    return ctx.wait(f"{message}. {trouble} {now}", blocked=trouble.reason)


def rescale(ctx: Context) -> Decision:
    """Have the engine redistribute the job."""
    if is_down(ctx):
        return _give_up(ctx)
    op, running, engine = ctx.op, ctx.status.running, ctx.seen.engine
    target = op.target_parallelism
    if running is None or target is None:
        return ctx.end("Abandoned", "there is nothing to rescale").done()
    if engine.running and engine.parallelism == target:
        return _rescaled(ctx, target)
    if op.retry_at is not None and ctx.now < op.retry_at:
        return ctx.wait(op.message, blocked=op.blocked, after=op.retry_at - ctx.now)
    if op.trigger_id is None:
        if not engine.running:
            return ctx.pending(f"a rescale needs a RUNNING job, this one is {engine.state or 'unreachable'}")
        return _ask(ctx, running.job_id, target)
    return _await(ctx, target)


def _ask(ctx: Context, job_id: str, target: int) -> Decision:
    attempt = ctx.op.attempt + 1
    trigger = ctx.digest(ctx.op.id, "rescale", target, attempt)
    deadline = ctx.now + ctx.settings.rescale_timeout
    ctx = ctx.with_op(attempt=attempt, trigger_id=trigger, request_id=None, deadline=deadline, retry_at=None)
    return ctx.act(Rescale(job_id, target, trigger), f"rescaling to {target}")


def _await(ctx: Context, target: int) -> Decision:
    op, engine, last = ctx.op, ctx.seen.engine, ctx.seen.last
    if last is not None and last.ok and last.request_id and last.request_id != op.request_id:
        return ctx.with_op(request_id=last.request_id).done()
    failure = ctx.failed_action("Rescale")
    if failure is not None and failure.code != "EngineUnreachable":
        return ctx.retry("RescaleFailed", _remedy(failure.message), trigger_id=None)
    request = engine.request
    if request is not None and request.state == "Completed":
        return _rescaled(ctx, target)
    if request is not None and request.state == "Failed":
        return ctx.retry("RescaleFailed", _remedy(request.cause), trigger_id=None)
    if ctx.past_deadline:
        return ctx.retry("RescaleTimeout", _remedy("not done in time"), trigger_id=None)
    lost = request is not None and request.state == "Unknown" and engine.running and failure is None
    if lost and op.request_id is None:
        return ctx.act(Rescale(ctx.status.running.job_id if ctx.status.running else "", target, op.trigger_id or ""))
    if lost:
        return ctx.with_op(trigger_id=None, request_id=None).done(after=ctx.settings.progress)
    return ctx.pending(f"rescaling to {target}")


def _rescaled(ctx: Context, target: int) -> Decision:
    running = ctx.status.running
    if running is None:
        return ctx.end("Abandoned", "the job is gone").done()
    ctx = ctx.with_status(running=running.model_copy(update={"parallelism": target}))
    return ctx.tell("Rescaled", f"the job runs with parallelism {target}").advance()


def _remedy(cause: str) -> str:
    return f"the rescale failed: {cause}. The job goes on with its former parallelism"


def remove_workers(ctx: Context) -> Decision:
    """Write the new parallelism down for a master that restarts, and let workers go that are not needed."""
    running, worker = ctx.status.running, ctx.seen.worker
    if running is None or worker is None:
        return ctx.end("Abandoned", "the job is gone").done()
    incarnation = ctx.running_incarnation
    if incarnation is None:
        return ctx.wait(f"revision {running.revision} cannot be read", blocked="RevisionLost")
    needed = ctx.running_workers(running.parallelism)
    last = ctx.seen.last
    applied = last is not None and last.ok and last.action == "ApplyParallelism"
    if worker.replicas == needed and applied:
        return ctx.end("Succeeded", f"parallelism {running.parallelism}").done()
    if worker.replicas > needed and not ctx.seen.engine.running and ctx.now - ctx.op.step_since < BLIND_AFTER:
        return ctx.wait("waiting for the job to run: only then it is known which workers are idle")
    failure = ctx.failed_action("ApplyParallelism")
    if failure is not None:
        return ctx.wait(explain(failure), blocked=failure.code, after=ctx.settings.backoff_first)
    return ctx.act(
        ApplyParallelism(incarnation, needed, ctx.seen.engine.busy_workers), "settling the number of workers"
    )
