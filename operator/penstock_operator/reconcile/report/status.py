"""The report of a decision: its status with phase, message and conditions for users and programs. Pure functions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock_operator.reconcile.decide.health.recovery import GIVEN_UP
from penstock_operator.reconcile.decide.next_step import observation_failure
from penstock_operator.reconcile.report.conditions import Finding, conditions, findings, nothing_known
from penstock_operator.reconcile.report.progress import progressed

if TYPE_CHECKING:
    from penstock_operator.api.status.flinkjob_status import FlinkJobStatus, Phase
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision


_OPERATION_PHASE: dict[str, Phase] = {
    "Deploy": "Starting",
    "Upgrade": "Upgrading",
    "Redeploy": "Upgrading",
    "Suspend": "Suspending",
    "Resume": "Starting",
    "Rollback": "RollingBack",
    "Recover": "Recovering",
    "Rescale": "Rescaling",
    "Delete": "Deleting",
}


def report(ctx: Context, decision: Decision) -> FlinkJobStatus:
    """Return the decided status with all fields for users."""
    if ctx.seen.failure:
        return _status_without_observation(ctx, decision.status)
    status = progressed(ctx, decision.status)
    ctx = replace(ctx, status=status)
    phase = _phase(ctx, status)
    found = findings(ctx, status, phase)
    updates: dict[str, Any] = {
        "observed_generation": ctx.subject.generation,
        "phase": phase,
        "phase_since": status.phase_since if status.phase == phase and status.phase_since else ctx.now,
        "message": ctx.clip(_message(found)),
        "conditions": conditions(ctx, status, found),
    }
    return status.model_copy(update=updates)


def _status_without_observation(ctx: Context, status: FlinkJobStatus) -> FlinkJobStatus:
    """Return the status of a job that could not be observed. It keeps the known fields and reports the reason."""
    reason = observation_failure(ctx)
    updates = {"message": ctx.clip(reason), "conditions": conditions(ctx, status, nothing_known(reason))}
    return status.model_copy(update=updates)


def _phase(ctx: Context, status: FlinkJobStatus) -> str:
    op, running = status.operation, status.running
    if ctx.subject.deleting:
        return "Deleting"
    if op is not None:
        first = op.kind == "Deploy" and op.step in ("Verify", "Check")
        return "Pending" if first else _OPERATION_PHASE.get(op.kind, status.phase)
    if running is None:
        return "Suspended" if ctx.spec is not None and ctx.spec.job.state == "suspended" else "Pending"
    if running.finished_at is not None:
        return "Finished"
    if running.failed_at is not None or status.job_state in GIVEN_UP:
        return "Failed"
    return "Running" if status.job_state == "RUNNING" else "Recovering"


def _message(found: dict[str, Finding]) -> str:
    for kind in ("Stalled", "Reconciling"):
        if found[kind].status == "True":
            return found[kind].message or found[kind].reason
    return found["Ready"].message
