"""The conditions of a FlinkJob. Pure functions. The operator only reads conditions to compute pauses.

    condition           True means
    ──────────────────  ──────────────────────────────────────────────────────────────────────────────────────────
    Ready               the job is in the state that this generation of the spec requests: RUNNING and stable,
                        suspended, or finished
    Reconciling         the operator is bringing the job to that state
    Stalled             the job needs a user's action to reach that state; reason and message name the action
    Progressing         the operation in progress advances; False with a reason if it does not
    Running             the engine's job processes records now
    CheckpointHealthy   checkpoints complete as often as they should
    AutoscalingLimited  the job does not get the parallelism that its load needs; only if the autoscaler is on

Ready, Reconciling and Stalled follow kstatus, so that `kubectl wait`, Flux and Argo CD understand them. At most one
of Reconciling and Stalled is True.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from penstock_operator.api.status.flinkjob_status import Condition
from penstock_operator.api.types import format_duration
from penstock_operator.reconcile.decide.adoption import REASON as STATUS_LOST
from penstock_operator.reconcile.decide.adoption import is_lost
from penstock_operator.reconcile.decide.flows import leaves_alone
from penstock_operator.reconcile.decide.health.causes import cause, in_words, last_of_running
from penstock_operator.reconcile.decide.health.pace import checkpoint_window
from penstock_operator.reconcile.decide.health.recovery import why_not_recovered
from penstock_operator.reconcile.decide.history import history_hint
from penstock_operator.reconcile.decide.operations.begin import redeploy_wanted, unused_parallelism
from penstock_operator.reconcile.decide.refusals import REFUSALS, SNAPSHOT_REFUSED, leftovers
from penstock_operator.reconcile.decide.restore.beginning import waits_for_release
from penstock_operator.reconcile.decide.restore.committed_end import Lost, Unknown, incarnation_restore
from penstock_operator.reconcile.decide.restore.predecessor import UnusedState
from penstock_operator.reconcile.decide.restore.stopping import (
    FENCED,
    end_overdue,
    stopped_without_request,
    suspended_overdue,
)

if TYPE_CHECKING:
    from penstock_operator.api.status.autoscaling import Autoscaling
    from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
    from penstock_operator.api.status.incarnation import Running
    from penstock_operator.api.status.operation import Operation
    from penstock_operator.reconcile.decide.context import Context

Truth = Literal["True", "False", "Unknown"]


@dataclass(frozen=True)
class Finding:
    """The status, reason and message of one condition."""

    status: Truth
    reason: str
    message: str = ""


_DUE = Finding("False", "SpecChanged", "the spec has changed")


def findings(ctx: Context, status: FlinkJobStatus, phase: str) -> dict[str, Finding]:
    """Return the finding of every condition."""
    stalled = _stalled(ctx, status)
    due = stalled is None and _is_due(ctx)
    limited = {} if status.autoscaling is None else {"AutoscalingLimited": _autoscaling_limited(status.autoscaling)}
    return {
        "Ready": _DUE if due else _ready(ctx, status, phase, stalled),
        "Reconciling": replace(_DUE, status="True") if due else _reconciling(status, phase, stalled),
        "Stalled": stalled or Finding("False", "NotStalled"),
        "Progressing": _progressing(status, stalled),
        "Running": _running(ctx, status),
        "CheckpointHealthy": _checkpoints(ctx, status),
        **limited,
    }


def nothing_known(reason: str) -> dict[str, Finding]:
    """Return the findings of a job that could not be observed."""
    unknown = Finding("Unknown", "OperatorError", reason)
    found = dict.fromkeys(("Ready", "Progressing", "Running", "CheckpointHealthy"), unknown)
    return found | {"Reconciling": Finding("False", "Stalled"), "Stalled": replace(unknown, status="True")}


def conditions(ctx: Context, status: FlinkJobStatus, found: dict[str, Finding]) -> tuple[Condition, ...]:
    """Return the conditions for the status. The time of the last transition only changes with the condition's status."""
    return tuple(_condition(ctx, status, kind, finding) for kind, finding in found.items())


def _is_due(ctx: Context) -> bool:
    """Return whether an operation is about to start, because the running incarnation differs from this generation of
    the spec.
    """
    spec, running = ctx.spec, ctx.status.running
    if spec is None or running is None or ctx.status.operation is not None or ctx.subject.deleting or ctx.is_rejected:
        return False
    suspended, finished = spec.job.state == "suspended", running.finished_at is not None
    if suspended or finished:
        return suspended != finished and (suspended or _restarts(ctx, running))
    if _restarts(ctx, running) or ctx.is_autoscaled:
        return _restarts(ctx, running)
    return min(spec.job.parallelism, spec.job.max_parallelism) != running.parallelism


def _restarts(ctx: Context, running: Running) -> bool:
    return redeploy_wanted(ctx) or ctx.desired_revision != running.revision


def _stalled(ctx: Context, status: FlinkJobStatus) -> Finding | None:
    op = status.operation
    if ctx.problems:
        return Finding("True", "InvalidSpec", "; ".join(str(p) for p in ctx.problems[:5]))
    if ctx.seen.ownerless:
        return Finding("True", "NameTaken", leftovers(ctx.seen.foreign, ctx.seen.ownerless))
    if status.error is not None and status.error.reason == STATUS_LOST and is_lost(ctx):
        return Finding("True", STATUS_LOST, status.error.message)
    if op is not None:
        return _operation_stalled(ctx, status, op) if op.blocked else None
    if ctx.is_rejected and status.rejected is not None:
        kept = f"; {status.running.revision} keeps running" if status.running else ""
        return Finding("True", status.rejected.reason, f"{status.rejected.message}{kept}")
    running = status.running
    if running is None or running.finished_at is not None:
        return None
    if status.error is not None and status.error.reason in (*REFUSALS, SNAPSHOT_REFUSED):
        return Finding("True", status.error.reason, status.error.message)
    return _job_stalled(ctx, status, running)


def _operation_stalled(ctx: Context, status: FlinkJobStatus, op: Operation) -> Finding:
    """Return why the operation waits, together with a problem of the running job. So neither problem hides the other."""
    blocked = Finding("True", op.blocked or "", op.message)
    running = status.running
    if running is None or running.finished_at is not None or op.step == "Watch" or not leaves_alone(op):
        return blocked
    job = _job_stalled(ctx, status, running)
    if job is None:
        return blocked
    return replace(blocked, message=f"{op.message}. The running job has another problem: {job.reason}: {job.message}")


def _job_stalled(ctx: Context, status: FlinkJobStatus, running: Running) -> Finding | None:
    seen = ctx.seen
    gone = seen.master is None or seen.master.replicas == 0
    stands = gone or status.job_state == "FAILED" or stopped_without_request(ctx) or waits_for_release(ctx)
    if stands and seen.storage.was_read:
        return _cannot_recover(ctx, running)
    if running.failed_at is not None:
        return _kept_failed(ctx, running)
    if end_overdue(ctx) and why_not_recovered(ctx, running) is not None:
        text = (
            f"the job is {status.job_state} and does not end. Change job.restartNonce. The operator then stops its pods"
        )
        return Finding("True", "EndTimeout", f"{text}, and the job continues from its newest checkpoint")
    if suspended_overdue(ctx):
        return Finding("True", "Fenced", FENCED)
    if seen.troubles and status.job_state != "RUNNING":
        trouble = seen.troubles[0]
        return Finding("True", trouble.reason, str(trouble))
    if status.health is not None and status.health.broken is not None:
        return Finding("True", status.health.broken, status.health.message)
    return None


def _cannot_recover(ctx: Context, running: Running) -> Finding | None:
    if ctx.effective_spec is None:
        return None
    point = incarnation_restore(running, ctx.seen.storage)
    if isinstance(point, Lost):
        return Finding("True", "StateLost", point.message)
    if isinstance(point, Unknown):
        return Finding("True", "StorageUnavailable", point.message)
    return _kept_failed(ctx, running)


def _kept_failed(ctx: Context, running: Running) -> Finding | None:
    kept = why_not_recovered(ctx, running) if running.failed_at is not None else None
    if kept is None:
        return None
    reason, remedy = kept
    return Finding("True", reason, f"{_why_failed(ctx, running)}. {remedy}")


def _why_failed(ctx: Context, running: Running | None) -> str:
    remembered = running.failure if running is not None else ""
    return _with_cause(ctx, ctx.seen.engine.exception or remembered or "the engine gave up the job")


def _ready(ctx: Context, status: FlinkJobStatus, phase: str, stalled: Finding | None) -> Finding:
    if stalled is not None:
        return Finding("False", stalled.reason, stalled.message)
    op = status.operation
    if op is not None:
        return Finding("False", phase, f"{op.step}: {op.message}" if op.message else op.step)
    running = status.running
    if phase == "Suspended":
        return Finding("True", "Suspended", _resumes_from(status))
    if running is not None and phase == "Finished":
        reason = "it has read all input" if running.end_of_input else "it was stopped, or its engine gave no reason"
        unused = unused_parallelism(ctx)
        return Finding("True", "Finished", f"{reason}{f'. {unused}' if unused else ''}{history_hint(ctx)}")
    if running is not None and phase == "Running":
        text = f"{running.revision} runs with parallelism {running.parallelism}"
        unused_state = running.restored_from.passed_over
        return Finding(
            "True", "Running", f"{text}; {UnusedState(unused_state, running.restored_from)}" if unused_state else text
        )
    if phase == "Failed":
        return Finding("False", "Failed", _why_failed(ctx, running))
    if ctx.seen.foreign:
        return Finding("False", "NameTaken", f"waiting for {ctx.seen.foreign[0]} of an earlier FlinkJob to be removed")
    return Finding(
        "False", phase, _with_cause(ctx, f"the job is {status.job_state or 'without a response from its master'}")
    )


def _with_cause(ctx: Context, text: str) -> str:
    reason = cause(ctx)
    return f"{text}: {reason}" if reason and text else reason or text


def _resumes_from(status: FlinkJobStatus) -> str:
    restore = status.next_restore
    return f"resumes from {restore.path}" if restore and restore.path else "starts from empty state"


def _reconciling(status: FlinkJobStatus, phase: str, stalled: Finding | None) -> Finding:
    op = status.operation
    if stalled is not None:
        return Finding("False", "Stalled")
    if op is not None:
        return Finding("True", op.kind, f"{op.step}: {op.message}" if op.message else op.step)
    if phase in ("Running", "Suspended", "Finished"):
        return Finding("False", "Settled")
    return Finding("True", phase)


def _progressing(status: FlinkJobStatus, stalled: Finding | None) -> Finding:
    op = status.operation
    if stalled is not None:
        return Finding("False", stalled.reason, stalled.message)
    if op is not None:
        until = f", until {op.deadline:%H:%M:%S} UTC" if op.deadline else ""
        return Finding("True", f"{op.kind}{op.step}", f"{op.message or op.step}{until}")
    return Finding("True", "Settled")


def _running(ctx: Context, status: FlinkJobStatus) -> Finding:
    if status.job_state == "RUNNING":
        last = last_of_running(ctx)
        return Finding("True", status.job_state, f"it runs again after this failure: {in_words(last)}" if last else "")
    if status.job_state:
        return Finding("False", status.job_state, _with_cause(ctx, ctx.seen.engine.exception))
    if status.running is None or status.running.finished_at is not None:
        return Finding("False", "NoJob")
    return Finding("False", "NoAnswer", _with_cause(ctx, ctx.seen.engine.error))


def _checkpoints(ctx: Context, status: FlinkJobStatus) -> Finding:
    if status.running is None or status.job_state != "RUNNING":
        return Finding("Unknown", "NotRunning")
    spec = ctx.effective_spec
    window = checkpoint_window(spec) if spec is not None else None
    if window is None:
        return Finding("Unknown", "NoInterval", "execution.checkpointing.interval is not set")
    if ctx.seen.engine.no_checkpoint_for < window:
        return Finding("True", "Completing")
    points = ctx.seen.engine.checkpoints
    reason = f": {points.failure}" if points.failure else ""
    remedy = "Check the job's exceptions and its access to storage.checkpoints"
    text = (
        f"no checkpoint has completed for more than {format_duration(window)}; {points.failed} failed{reason}. {remedy}"
    )
    return Finding("False", "Overdue", text)


def _autoscaling_limited(autoscaling: Autoscaling) -> Finding:
    if autoscaling.limited is None:
        return Finding("False", "NotLimited")
    return Finding("True", autoscaling.limited, autoscaling.limited_message)


def _condition(ctx: Context, status: FlinkJobStatus, kind: str, found: Finding) -> Condition:
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
