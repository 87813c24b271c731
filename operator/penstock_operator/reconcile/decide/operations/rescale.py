"""Change of the parallelism of a running job.

To scale up, the operator adds workers first and then rescales the job. To scale down, it rescales the job first and
then removes workers. So the job has enough slots at all times. If the operator crashes in between, spare workers
remain, but no workers are missing.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.reconcile.decide.actions import ApplyParallelism, Rescale, ScaleWorkers
from penstock_operator.reconcile.decide.refusals import explain, lost_revision
from penstock_operator.reconcile.decide.restore.stopping import is_down

if TYPE_CHECKING:
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision

BLIND_AFTER = timedelta(minutes=2)
"""Time after which spare workers of a job that does not run are removed, although the operator does not know which
workers are idle.
"""


def add_workers(ctx: Context) -> Decision:
    """Add the workers that the greater of the two parallelisms needs, and wait for their slots."""
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
    """End the rescale, because the job must be recovered first. A new rescale then changes the job to the parallelism
    of the spec.
    """
    reason = f"the job is {ctx.seen.engine.state or 'without its master'}, so it cannot be rescaled"
    return ctx.with_event("Abandoned", reason).end("Abandoned", reason).done()


def _short_of_slots(ctx: Context, target: int) -> Decision:
    message = f"waiting for slots: {ctx.seen.engine.slots_total} of {target}"
    trouble = next((p.trouble for p in ctx.seen.pods_of("worker") if p.trouble and not p.ready), None)
    if trouble is None and ctx.seen.worker is not None:
        trouble = ctx.seen.worker.trouble
    if trouble is None:
        return ctx.wait(message)
    running = ctx.status.running
    now = f"The job keeps parallelism {running.parallelism}" if running else ""
    return ctx.wait(f"{message}. {trouble} {now}", blocked=trouble.reason)


def rescale(ctx: Context) -> Decision:
    """Request the rescale from the engine, and wait until it is complete."""
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
        return _request(ctx, running.job_id, target)
    return _wait_for_rescale(ctx, target)


def _request(ctx: Context, job_id: str, target: int) -> Decision:
    attempt = ctx.op.attempt + 1
    trigger = ctx.digest(ctx.op.id, "rescale", target, attempt)
    deadline = ctx.now + ctx.settings.rescale_timeout
    ctx = ctx.with_op(attempt=attempt, trigger_id=trigger, request_id=None, deadline=deadline, retry_at=None)
    return ctx.act(Rescale(job_id, target, trigger), f"rescaling to {target}")


def _wait_for_rescale(ctx: Context, target: int) -> Decision:
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
        return ctx.retry("RescaleTimeout", _remedy("it was not complete before the timeout"), trigger_id=None)
    lost = request is not None and request.state == "Unknown" and engine.running and failure is None
    if lost and op.request_id is None:
        return ctx.act(Rescale(ctx.status.running.job_id if ctx.status.running else "", target, op.trigger_id or ""))
    if lost:
        return ctx.with_op(trigger_id=None, request_id=None).done(after=ctx.settings.progress)
    return ctx.pending(f"rescaling to {target}")


def _rescaled(ctx: Context, target: int) -> Decision:
    running = ctx.status.running
    if running is None:
        return ctx.end("Abandoned", "no incarnation runs").done()
    ctx = ctx.with_status(running=running.model_copy(update={"parallelism": target}))
    return ctx.with_event("Rescaled", f"the job runs with parallelism {target}").advance()


def _remedy(cause: str) -> str:
    return f"the rescale failed: {cause}. The job keeps its former parallelism"


def remove_workers(ctx: Context) -> Decision:
    """Store the new parallelism for a master that restarts, and remove workers that are not needed."""
    running, worker = ctx.status.running, ctx.seen.worker
    if running is None or worker is None:
        return ctx.end("Abandoned", "no incarnation runs").done()
    incarnation = ctx.running_incarnation
    if incarnation is None:
        return ctx.end("Abandoned", lost_revision(running.revision)).done()
    needed = ctx.running_workers(running.parallelism)
    last = ctx.seen.last
    applied = last is not None and last.ok and last.action == "ApplyParallelism"
    if worker.replicas == needed and applied:
        return ctx.end("Succeeded", f"parallelism {running.parallelism}").done()
    if worker.replicas > needed and not ctx.seen.engine.running and ctx.now - ctx.op.step_since < BLIND_AFTER:
        return ctx.wait("waiting for the job to run, because only a running job shows which workers are idle")
    failure = ctx.failed_action("ApplyParallelism")
    if failure is not None:
        return ctx.wait(explain(failure), blocked=failure.code, after=ctx.settings.backoff_first)
    return ctx.act(
        ApplyParallelism(incarnation, needed, ctx.seen.engine.busy_workers), "adjusting the number of workers"
    )
