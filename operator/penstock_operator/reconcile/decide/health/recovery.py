"""The decision whether a job that the engine has given up is started again, or stays Failed. Pure functions.

If a user has canceled the job over its REST API, the job is not started again, because the cancel was not a failure.
The status records the cancel (`status.running.canceled`).

Each start after a failure is counted until the job has been RUNNING for ten minutes. The count belongs to the
incarnation (`status.running.failures`), and each automatic successor inherits it. An incarnation that the user
requests (an edit, `job.restartNonce`) starts with a count of 0.

The engine keeps no record of a failure: a master that restarts runs the job again. So the status records the failure
(`status.running.failedAt`), also after the master is gone. If the job must stay Failed, its pods stay too, so that
users can inspect them. The pods are removed when the master ends or starts to run the job. If the job may be started
again, a new master may already run it. The operator then only counts this start.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock_operator.api.status.incarnation import Running
    from penstock_operator.reconcile.decide.context import Context

FAILURES_FORGOTTEN = timedelta(minutes=10)
"""Time of RUNNING after which the count of failures is reset."""


EXHAUSTED = "RestartsExhausted"
CANCELED = "JobCanceled"
GIVEN_UP = frozenset({"FAILED", "CANCELED"})
"""States of a job that the engine has given up, although it was not supposed to end."""


def with_failure_record(ctx: Context) -> Context:
    """Return the same context with a failure or a successful recovery recorded in its status."""
    running, engine, status = ctx.status.running, ctx.seen.engine, ctx.status
    if running is None or running.finished_at is not None or engine.job_id != running.job_id:
        return ctx
    if engine.state in GIVEN_UP:
        if running.failed_at is not None:
            return ctx
        since = status.phase_since if status.phase == "Failed" else None
        failure = ctx.clip(engine.exception or str(engine.state))
        return _with(ctx, failed_at=since or ctx.now, failure=failure, canceled=engine.state == "CANCELED")
    if running.failed_at is not None:
        is_not_recovered = why_not_recovered(ctx, running) is not None
        return ctx if is_not_recovered else _with(ctx, failed_at=None, failure="", failures=running.failures + 1)
    return _with(ctx, failures=0) if running.failures and _is_stable_again(ctx) else ctx


def is_permanently_failed(ctx: Context) -> bool:
    """Return whether the engine has given up the job, and the operator does not start it again."""
    running = ctx.status.running
    if running is None or running.failed_at is None or running.finished_at is not None:
        return False
    return why_not_recovered(ctx, running) is not None


def failed_master_is_gone(ctx: Context) -> bool:
    """Return whether the master that gave up the job is gone, or another master runs the job."""
    engine = ctx.seen.engine
    return engine.absent or (engine.reachable and not engine.terminal)


def why_not_recovered(ctx: Context, running: Running) -> tuple[str, str] | None:
    """Return the reason and a message if a failed job is not started again. Return None if the job is started again."""
    spec = ctx.effective_spec
    if running.canceled:
        return CANCELED, "A user canceled the job over its REST API. Change job.restartNonce to start it again"
    if spec is None:
        return None
    if not spec.recovery.restart_failed:
        return "JobFailed", "Correct the job, or change job.restartNonce to start it again"
    limit, count = spec.recovery.max_restarts, running.failures
    if limit is not None and count >= limit:
        often = f"It was restarted {count} times in a row, and recovery.maxRestarts is {limit}"
        return EXHAUSTED, f"{often}. Correct the job, or change job.restartNonce to start it again"
    return None


def _is_stable_again(ctx: Context) -> bool:
    """Return whether the job has been RUNNING long enough. Times without a response of the master do not count."""
    since = ctx.status.job_state_since
    seen = ctx.seen.engine.running and ctx.status.job_state == "RUNNING"
    return seen and since is not None and ctx.now - since > FAILURES_FORGOTTEN


def _with(ctx: Context, **changes: object) -> Context:
    running = ctx.status.running
    return ctx if running is None else ctx.with_status(running=running.model_copy(update=changes))
