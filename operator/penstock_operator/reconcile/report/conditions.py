"""What people and programs read: phase, conditions, message. Pure, and never read back to decide anything but pauses.

    condition           True means
    ──────────────────  ──────────────────────────────────────────────────────────────────────────────────────────
    Ready               the job is in the state that this generation of the spec asks for: RUNNING and proved, suspended,
                        or finished
    Reconciling         the operator is on its way there
    Stalled             it cannot get there without a person; reason and message say what to do
    Progressing         the operation in progress moves; False with a reason when it does not
    Running             the engine's job processes records now
    CheckpointHealthy   checkpoints complete as often as they should

Ready, Reconciling and Stalled follow kstatus, so that `kubectl wait`, Flux and Argo CD understand them without help.
At most one of Reconciling and Stalled is True.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from penstock_operator.api.status import Checkpoint, Condition, Restore
from penstock_operator.api.types import format_duration
from penstock_operator.reconcile.decide.adoption import REASON as STATUS_LOST
from penstock_operator.reconcile.decide.adoption import is_lost
from penstock_operator.reconcile.decide.begin import redeploy_wanted
from penstock_operator.reconcile.decide.health.causes import cause, in_words, last_of_running, restarts_of
from penstock_operator.reconcile.decide.health.pace import checkpoint_window
from penstock_operator.reconcile.decide.health.recovery import GIVEN_UP, why_not_recovered
from penstock_operator.reconcile.decide.restore.ending import end_overdue, stopped_unasked, suspended_overdue
from penstock_operator.reconcile.decide.restore.predecessor import Words
from penstock_operator.reconcile.decide.steps.shared import REFUSALS, effective_spec, is_rejected

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from penstock_operator.api.status import FlinkJobStatus, Phase, Running
    from penstock_operator.reconcile.decide.actions import Decision
    from penstock_operator.reconcile.decide.context import Context

Truth = Literal["True", "False", "Unknown"]

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


@dataclass(frozen=True)
class _Finding:
    """The truth of one condition."""

    status: Truth
    reason: str
    message: str = ""


FENCED = (
    "another JobManager has taken the job over from its master, which ends and is started again. Only one may run under a job id: "
    "if this comes again and again, look for the other one"
)
_DUE = _Finding("False", "SpecChanged", "the spec has changed")


def report(ctx: Context, decision: Decision) -> FlinkJobStatus:
    """The decided status with everything that people read."""
    if ctx.seen.failure:
        return _unseen_status(ctx, decision.status)
    status = _volatile(ctx, decision.status)
    ctx = replace(ctx, status=status)
    phase = _phase(ctx, status)
    stalled = _stalled(ctx, status)
    due = stalled is None and _is_due(ctx)
    findings = {
        "Ready": _DUE if due else _ready(ctx, status, phase, stalled),
        "Reconciling": replace(_DUE, status="True") if due else _reconciling(status, phase, stalled),
        "Stalled": stalled or _Finding("False", "NotStalled"),
        "Progressing": _progressing(status, stalled),
        "Running": _running(ctx, status),
        "CheckpointHealthy": _checkpoints(ctx, status),
    }
    updates: dict[str, Any] = {
        "observed_generation": ctx.subject.generation,
        "phase": phase,
        "phase_since": status.phase_since if status.phase == phase and status.phase_since else ctx.now,
        "message": ctx.clip(_message(status, findings)),
        "conditions": tuple(_condition(ctx, status, kind, found) for kind, found in findings.items()),
    }
    return status.model_copy(update=updates)


def unseen(ctx: Context) -> str:
    """Why nothing is known of the job, and what that means."""
    return (
        f"the operator failed while it looked at the job ({ctx.seen.failure}). What runs is left alone; it looks again. "
        "Its log says more"
    )


def _unseen_status(ctx: Context, status: FlinkJobStatus) -> FlinkJobStatus:
    """What was known stays; that nothing is known now is told."""
    unknown = _Finding("Unknown", "OperatorError", unseen(ctx))
    findings = dict.fromkeys(("Ready", "Progressing", "Running", "CheckpointHealthy"), unknown)
    findings |= {"Reconciling": _Finding("False", "Stalled"), "Stalled": replace(unknown, status="True")}
    updates: dict[str, Any] = {
        "message": ctx.clip(unknown.message),
        "conditions": tuple(_condition(ctx, status, kind, found) for kind, found in findings.items()),
    }
    return status.model_copy(update=updates)


def _is_due(ctx: Context) -> bool:
    """No operation is in progress, and one is to begin: what runs is not yet what this generation asks for."""
    spec, running = ctx.spec, ctx.status.running
    if spec is None or running is None or ctx.status.operation is not None or ctx.subject.deleting or is_rejected(ctx):
        return False
    suspended, finished = spec.job.state == "suspended", running.finished_at is not None
    if suspended or finished:
        return suspended != finished and (suspended or _restarts(ctx, running))
    target = min(spec.job.parallelism, spec.job.max_parallelism)
    return _restarts(ctx, running) or target != running.parallelism


def _restarts(ctx: Context, running: Running) -> bool:
    return redeploy_wanted(ctx) or ctx.desired_revision != running.revision


def _volatile(ctx: Context, status: FlinkJobStatus) -> FlinkJobStatus:
    running, engine, stored = status.running, ctx.seen.engine, ctx.seen.storage.newest
    ended = running is not None and running.finished_at is not None
    if running is not None and stored is not None and stored.job_id == running.job_id:
        running = running.model_copy(update={"had_checkpoint": True})
    updates: dict[str, Any] = {
        "running": running,
        "job_id": running.job_id if running else None,
        "parallelism": running.parallelism
        if running
        else (ctx.spec.job.parallelism if ctx.spec else status.parallelism),
        "label_selector": f"penstock.dev/job={ctx.subject.name},penstock.dev/role=worker",
        "workers": sum(p.ready and not p.terminating for p in ctx.seen.pods_of("worker")),
        "restarts": max(status.restarts, restarts_of(ctx, running)) if running else 0,
        "job_state": status.job_state if running else None,
        "job_state_since": status.job_state_since if running else None,
    }
    if running is not None and engine.reachable and engine.job_id == running.job_id:
        points = engine.checkpoints
        updates["job_state"] = engine.state
        if points.completed and not running.had_checkpoint:
            updates["running"] = running.model_copy(update={"had_checkpoint": True})
        if points.latest_path and points.latest_id is not None:
            newest = Checkpoint(
                path=points.latest_path, id=points.latest_id, job_id=running.job_id, time=points.latest_at
            )
            updates["last_checkpoint"] = newest
            if status.operation is None:
                updates["next_restore"] = Restore(
                    kind="Checkpoint",
                    path=newest.path,
                    checkpoint_id=newest.id,
                    time=newest.time,
                    reason="newest checkpoint",
                )
    elif not ended and (engine.absent or engine.silent_for > ctx.settings.silence):
        updates["job_state"] = None
    if updates["job_state"] != status.job_state:
        updates["job_state_since"] = ctx.now if updates["job_state"] else None
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


def _stalled(ctx: Context, status: FlinkJobStatus) -> _Finding | None:
    op, seen = status.operation, ctx.seen
    if ctx.problems:
        return _Finding("True", "InvalidSpec", "; ".join(str(p) for p in ctx.problems[:5]))
    if status.error is not None and status.error.reason == STATUS_LOST and is_lost(ctx):
        return _Finding("True", STATUS_LOST, status.error.message)
    if op is not None:
        return _Finding("True", op.blocked, op.message) if op.blocked else None
    if is_rejected(ctx) and status.rejected is not None:
        kept = f"; {status.running.revision} goes on running" if status.running else ""
        return _Finding("True", status.rejected.reason, f"{status.rejected.message}{kept}")
    running = status.running
    if running is None or running.finished_at is not None:
        return None
    if status.error is not None and status.error.reason in REFUSALS:
        return _Finding("True", status.error.reason, status.error.message)
    gone = seen.master is None or seen.master.replicas == 0
    if (gone or status.job_state == "FAILED" or stopped_unasked(ctx)) and seen.storage.asked:
        return _cannot_recover(ctx, running)
    if running.failed_at is not None:
        return _kept_failed(ctx, running)
    if end_overdue(ctx) and why_not_recovered(ctx, running) is not None:
        text = f"the job is {status.job_state} and does not end. Change job.restartNonce: its pods are then stopped"
        return _Finding("True", "EndTimeout", f"{text}, and it goes on from its newest checkpoint")
    if suspended_overdue(ctx):
        return _Finding("True", "Fenced", FENCED)
    if seen.troubles and status.job_state != "RUNNING":
        trouble = seen.troubles[0]
        return _Finding("True", trouble.reason, str(trouble))
    if status.health is not None and status.health.broken is not None:
        return _Finding("True", status.health.broken, status.health.message)
    return None


def _cannot_recover(ctx: Context, running: Running) -> _Finding | None:
    from penstock_operator.reconcile.decide.restore.committed_end import Lost, Unknown, incarnation_restore

    if effective_spec(ctx) is None:
        return None
    point = incarnation_restore(running, ctx.seen.storage)
    if isinstance(point, Lost):
        return _Finding("True", "StateLost", point.message)
    if isinstance(point, Unknown):
        return _Finding("True", "StorageUnavailable", point.message)
    return _kept_failed(ctx, running)


def _kept_failed(ctx: Context, running: Running) -> _Finding | None:
    kept = why_not_recovered(ctx, running) if running.failed_at is not None else None
    if kept is None:
        return None
    reason, remedy = kept
    return _Finding("True", reason, f"{_why_failed(ctx, running)}. {remedy}")


def _why_failed(ctx: Context, running: Running | None) -> str:
    remembered = running.failure if running is not None else ""
    return _with_cause(ctx, ctx.seen.engine.exception or remembered or "the engine gave the job up")


def _ready(ctx: Context, status: FlinkJobStatus, phase: str, stalled: _Finding | None) -> _Finding:
    if stalled is not None:
        return _Finding("False", stalled.reason, stalled.message)
    op = status.operation
    if op is not None:
        return _Finding("False", phase, f"{op.step}: {op.message}" if op.message else op.step)
    running = status.running
    if phase == "Suspended":
        return _Finding("True", "Suspended", _resumes_from(status))
    if running is not None and phase == "Finished":
        return _Finding(
            "True",
            "Finished",
            "all of its input is read" if running.end_of_input else "it was stopped, or its engine does not say why",
        )
    if running is not None and phase == "Running":
        text = f"{running.revision} runs with parallelism {running.parallelism}"
        left = running.restored_from.passed_over
        return _Finding("True", "Running", f"{text}; {Words(left, running.restored_from)}" if left else text)
    if phase == "Failed":
        return _Finding("False", "Failed", _why_failed(ctx, running))
    if ctx.seen.foreign:
        return _Finding("False", "NameTaken", f"waiting for {ctx.seen.foreign[0]} of an earlier FlinkJob to be removed")
    return _Finding(
        "False", phase, _with_cause(ctx, f"the job is {status.job_state or 'without an answer from its master'}")
    )


def _with_cause(ctx: Context, text: str) -> str:
    why = cause(ctx)
    return f"{text}: {why}" if why and text else why or text


def _resumes_from(status: FlinkJobStatus) -> str:
    restore = status.next_restore
    return f"resumes from {restore.path}" if restore and restore.path else "will start empty"


def _reconciling(status: FlinkJobStatus, phase: str, stalled: _Finding | None) -> _Finding:
    op = status.operation
    if stalled is not None:
        return _Finding("False", "Stalled")
    if op is not None:
        return _Finding("True", op.kind, f"{op.step}: {op.message}" if op.message else op.step)
    if phase in ("Running", "Suspended", "Finished"):
        return _Finding("False", "Settled")
    return _Finding("True", phase)


def _progressing(status: FlinkJobStatus, stalled: _Finding | None) -> _Finding:
    op = status.operation
    if stalled is not None:
        return _Finding("False", stalled.reason, stalled.message)
    if op is not None:
        until = f", until {op.deadline:%H:%M:%S} UTC" if op.deadline else ""
        return _Finding("True", f"{op.kind}{op.step}", f"{op.message or op.step}{until}")
    return _Finding("True", "Settled")


def _running(ctx: Context, status: FlinkJobStatus) -> _Finding:
    if status.job_state == "RUNNING":
        last = last_of_running(ctx)
        return _Finding("True", status.job_state, f"it runs again; before, {in_words(last)}" if last else "")
    if status.job_state:
        return _Finding("False", status.job_state, _with_cause(ctx, ctx.seen.engine.exception))
    if status.running is None or status.running.finished_at is not None:
        return _Finding("False", "NoJob")
    return _Finding("False", "NoAnswer", _with_cause(ctx, ctx.seen.engine.error))


def _checkpoints(ctx: Context, status: FlinkJobStatus) -> _Finding:
    newest, running = status.last_checkpoint, status.running
    if running is None or status.job_state != "RUNNING":
        return _Finding("Unknown", "NotRunning")
    since = newest.time if newest and newest.job_id == running.job_id and newest.time else running.started_at
    spec = effective_spec(ctx)
    window = checkpoint_window(spec) if spec is not None else None
    if window is None:
        return _Finding("Unknown", "NoInterval", "execution.checkpointing.interval is not set")
    if ctx.now - since <= window:
        return _Finding("True", "Completing")
    points = ctx.seen.engine.checkpoints
    why = f": {points.failure}" if points.failure else ""
    remedy = "Look at the job's exceptions and at its access to storage.checkpoints"
    text = f"no checkpoint has completed for more than {format_duration(window)}; {points.failed} failed{why}. {remedy}"
    return _Finding("False", "Overdue", text)


def _message(status: FlinkJobStatus, findings: dict[str, _Finding]) -> str:
    for kind in ("Stalled", "Reconciling"):
        if findings[kind].status == "True":
            return findings[kind].message or findings[kind].reason
    return findings["Ready"].message


def _condition(ctx: Context, status: FlinkJobStatus, kind: str, found: _Finding) -> Condition:
    before = status.condition(kind)
    same = before is not None and before.status == found.status
    return Condition(
        type=kind,
        status=found.status,
        reason=found.reason,
        message=ctx.clip(found.message),
        observed_generation=ctx.subject.generation,
        last_transition_time=before.last_transition_time if same and before else ctx.now,
    )


def weighty(status: FlinkJobStatus) -> dict[str, Any]:
    """The status without what changes all the time: if this is equal, a write can wait."""
    manifest = status.to_manifest()
    for key in ("lastCheckpoint", "restarts"):
        manifest.pop(key, None)
    for part, counters in (("health", ("restarts", "restartsAt")), ("ends", ("restarts", "told"))):
        for key in counters:
            manifest.get(part, {}).pop(key, None)
    if not (status.ends and status.ends.counted):
        manifest.pop("ends", None)
    if status.operation is None and status.running is not None:
        manifest.pop("nextRestore", None)
    return manifest


def write_due(
    before: FlinkJobStatus, after: FlinkJobStatus, *, since: datetime | None, now: datetime, pause: timedelta
) -> bool:
    """Whether the new status is worth a write to the API server now."""
    if before.to_manifest() == after.to_manifest():
        return False
    return weighty(before) != weighty(after) or since is None or now - since >= pause
