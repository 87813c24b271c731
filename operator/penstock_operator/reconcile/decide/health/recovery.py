"""Whether a job that the engine has given up is started again, or stays Failed. Pure.

Each start after a failure counts, until the job has been RUNNING for ten minutes. The count is kept with the incarnation
(`status.running.failures`) and handed on to the one that takes its place, whatever that is made for; whatever begins another
one by the user's wish (an edit, `job.restartNonce`) begins to count anew.

The engine keeps no record of a failure: a master that is started again runs the job again. So that it failed is kept here
(`status.running.failedAt`), and outlives the master that said so. If the job is to stay Failed, its pods stay as well, for
people to look at, until its master ends or begins to run the job; then they are removed. If it is to be started again, and a new
master has been faster, that was the start, and counts.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock_operator.api.status import Running
    from penstock_operator.reconcile.decide.context import Context

FAILURES_FORGOTTEN = timedelta(minutes=10)
"""A job that has been RUNNING for so long starts counting its failures anew."""


EXHAUSTED = "RestartsExhausted"
GIVEN_UP = frozenset({"FAILED", "CANCELED"})
"""States in which the engine leaves a job that was not to end."""


def remembered(ctx: Context) -> Context:
    """The same context with what the engine says of failing and holding out kept in its status."""
    running, engine, status = ctx.status.running, ctx.seen.engine, ctx.status
    if running is None or running.finished_at is not None or engine.job_id != running.job_id:
        return ctx
    if engine.state in GIVEN_UP:
        if running.failed_at is not None:
            return ctx
        since = status.phase_since if status.phase == "Failed" else None
        return _with(ctx, failed_at=since or ctx.now, failure=ctx.clip(engine.exception or str(engine.state)))
    if running.failed_at is not None:
        stays = why_not_recovered(ctx, running) is not None
        return ctx if stays else _with(ctx, failed_at=None, failure="", failures=running.failures + 1)
    return _with(ctx, failures=0) if running.failures and _has_held_out(ctx) else ctx


def stays_failed(ctx: Context) -> bool:
    """The engine has given the job up, and it is not started again."""
    running = ctx.status.running
    if running is None or running.failed_at is None or running.finished_at is not None:
        return False
    return why_not_recovered(ctx, running) is not None


def runs_anew(ctx: Context) -> bool:
    """The master that gave the job up is gone, or another one has begun to run it."""
    engine = ctx.seen.engine
    return engine.absent or (engine.reachable and not engine.terminal)


def why_not_recovered(ctx: Context, running: Running) -> tuple[str, str] | None:
    """Reason and words, if a job stays as it is once it has failed."""
    spec = ctx.effective_spec
    if spec is None:
        return None
    if not spec.recovery.restart_failed:
        return "JobFailed", "Correct the job, or change job.restartNonce to start it again"
    limit, count = spec.recovery.max_restarts, running.failures
    if limit is not None and count >= limit:
        often = f"It was started again {count} times in a row, and recovery.maxRestarts is {limit}"
        return EXHAUSTED, f"{often}. Correct the job, or change job.restartNonce to start it again"
    return None


def _has_held_out(ctx: Context) -> bool:
    """What it did while its master was silent, or tried to start it, is no running."""
    since = ctx.status.job_state_since
    seen = ctx.seen.engine.running and ctx.status.job_state == "RUNNING"
    return seen and since is not None and ctx.now - since > FAILURES_FORGOTTEN


def _with(ctx: Context, **changes: object) -> Context:
    running = ctx.status.running
    return ctx if running is None else ctx.with_status(running=running.model_copy(update=changes))
