"""Whether a job that the engine has given up is started again, or stays Failed. Pure.

Each start after a failure counts, until one has held out for ten minutes. The count belongs to the incarnation
(`status.running.failures`), so that whatever begins another one by the user's wish (an edit, `job.restartNonce`) begins to
count anew.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.reconcile.steps.shared import effective_spec

if TYPE_CHECKING:
    from datetime import datetime

    from penstock_operator.api.status import Running
    from penstock_operator.reconcile.context import Context

FAILURES_FORGOTTEN = timedelta(minutes=10)
"""A job that held out this long starts counting its failures anew."""


EXHAUSTED = "RestartsExhausted"


def failures_in_a_row(ctx: Context, running: Running) -> int:
    """How often it was started again without having held out."""
    lasted = _ended_at(ctx) - running.started_at > FAILURES_FORGOTTEN
    return 0 if lasted else running.failures


def _ended_at(ctx: Context) -> datetime:
    """When the job failed; while it is Failed for good time goes on, and says nothing of how long it held out."""
    since = ctx.status.phase_since
    return since if ctx.status.phase == "Failed" and since is not None else ctx.now


def why_not_recovered(ctx: Context, running: Running) -> tuple[str, str] | None:
    """Reason and words, if a failed job stays as it is."""
    spec = effective_spec(ctx)
    if spec is None:
        return None
    if not spec.recovery.restart_failed:
        return "JobFailed", "Correct the job, or change job.restartNonce to start it again"
    limit, count = spec.recovery.max_restarts, failures_in_a_row(ctx, running)
    if limit is not None and count >= limit:
        often = f"It was started again {count} times in a row, and recovery.maxRestarts is {limit}"
        return EXHAUSTED, f"{often}. Correct the job, or change job.restartNonce to start it again"
    return None
