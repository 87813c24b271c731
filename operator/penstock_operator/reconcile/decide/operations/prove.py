"""The checks before the running job is changed: the savepoint exists, the new image works, and its graph accepts the
state.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.api.status.snapshots import Restore
from penstock_operator.reconcile.decide.actions import DeleteCheck, RunCheck, TryObjects
from penstock_operator.reconcile.decide.decision import Decision
from penstock_operator.reconcile.decide.operations.first_check import (
    CHECK_TIMEOUT,
    check_by_master,
    is_checked_by_master,
    remove_pods,
)
from penstock_operator.reconcile.decide.operations.look_back import look_back
from penstock_operator.reconcile.decide.refusals import REFUSALS, REVISION_LOST, explain, lost_revision
from penstock_operator.reconcile.decide.restore.predecessor import LATEST
from penstock_operator.resources.incarnation import SERVICE_SUFFIXES, Incarnation, worker_count
from penstock_operator.resources.memory import with_worker_memory

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status.operation import Operation
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.observation import CheckPod, LeavingCheck

CHECK_GONE_AFTER = timedelta(minutes=1)
"""Time after which a check pod that is still being deleted is assumed to be on a node that does not respond."""
_ANY_STATE = Restore(kind="Latest", reason="the newest checkpoint is not known before the job has stopped")
CHECKING = "checking the new revision in a separate pod"
_ACCESS = (
    "Correct spec.storage (spec.storage.secretName names the keys), or give access; the operator then checks again"
)
_OF_THE_STATE = frozenset({"RESTORE_REFUSED", "STATE_SCHEMA_INCOMPATIBLE"})
_UNTIL_STARTED = frozenset({"ImagePullFailed", "ContainerConfigError"})
"""Reasons why a check cannot start. They stay reported when the check pod is replaced, until a check starts."""
_MOST_NAMED = 3
"""Maximum number of places that an event names."""
_STOPS_A_JOB = frozenset({"Upgrade", "Redeploy"})
"""Operations that stop a job. For these, the operator checks even a stable revision with a dry run, because quotas and
policies of the API server change.
"""
_UNTIL_JUDGED = frozenset({"StorageUnavailable", "CheckInterrupted", "RollbackBlocked"})
"""Reasons why a check is repeated. They are reported until a check has ended."""


def verify(ctx: Context) -> Decision:
    """Verify the snapshot from which the job is to be started."""
    before = look_back(ctx)
    if isinstance(before, Decision):
        return before
    ctx, restore = before, before.op.restore
    if restore is None or restore.path is None:
        return ctx.advance()
    verdict = ctx.seen.storage.verdict(restore.path)
    if verdict is None:
        return ctx.wait_for_storage(f"verifying {restore.path}")
    if verdict.ok:
        return ctx.advance()
    message = f"{restore.path} cannot be restored from: {verdict.reason}"
    if ctx.op.source == LATEST:
        remedy = "Restore the files, or set job.initialSavepointPath to another savepoint"
        return ctx.wait(f"{message}. {remedy}", blocked="SavepointInvalid", after=ctx.settings.backoff_limit)
    if ctx.op.kind == "Resume":
        remedy = "Restore the files, or set job.initialSavepointPath to another savepoint and change job.savepointRedeployNonce"
        return ctx.wait(f"{message}. {remedy}", blocked="SavepointInvalid", after=ctx.settings.backoff_limit)
    return ctx.reject("SavepointInvalid", f"{message}. Correct spec.job.initialSavepointPath")


def check(ctx: Context) -> Decision:
    """Check the new revision, in a separate pod or by the master of a first deployment."""
    op = ctx.op
    spec = ctx.revision_spec(op.target_revision)
    if spec is None:
        return ctx.wait(lost_revision(op.target_revision), blocked=REVISION_LOST)
    proven = op.kind != "Redeploy" and op.target_revision == ctx.status.stable_revision
    if _restores_newer_state(op):
        pass
    elif not op.accepted and (op.kind in _STOPS_A_JOB or not proven):
        return _try_objects(ctx, spec)
    elif proven or not spec.upgrade.check:
        return ctx.advance()
    if is_checked_by_master(ctx, spec):
        found = check_by_master(ctx, spec)
        return found if isinstance(found, Decision) else _decide_by_check(ctx, found)
    removal = remove_pods(ctx)
    if removal is not None:
        return removal
    pod = ctx.seen.check
    if pod is None:
        return _launch(ctx)
    if pod.operation != op.id:
        return ctx.act(DeleteCheck(pod.name))
    return _decide_by_check(ctx, pod)


def _restores_newer_state(op: Operation) -> bool:
    """Return whether a rollback to a stable revision starts from a checkpoint of the failed revision, which needs a
    check.
    """
    before = op.fallback_restore.path if op.fallback_restore is not None else None
    return op.kind == "Rollback" and op.restore is not None and op.restore.path != before


def _rollback_blocked(ctx: Context, pod: CheckPod, reason: str) -> Decision:
    """Report that the old revision does not accept the committed state of the failed revision, and wait.

    A return to earlier state would repeat output, so a user must decide.
    """
    op = ctx.op
    start = op.restore.path if op.restore is not None else None
    before = op.fallback_restore.path if op.fallback_restore is not None else None
    repeat = (
        f"set job.initialSavepointPath to {before} and change job.savepointRedeployNonce, with the old program in the spec"
        if before
        else "start from empty state (job.upgradeMode stateless)"
    )
    text = (
        f"the failed revision has completed checkpoints, so its output up to {start} is committed, but {op.target_revision} "
        f"cannot be restored from that state: {reason}. The job does not run, and no state is deleted. To continue without repeated output, edit the "
        f"spec so that it accepts that state (or change job.restartNonce). To go back, {repeat}; the job then repeats its output "
        "since that point"
    )
    return _check_again(ctx, pod, "RollbackBlocked", text)


def _try_objects(ctx: Context, spec: FlinkJobSpec) -> Decision:
    """Check with a dry run whether the API server accepts every object of the revision. The check pod cannot show this."""
    op, last = ctx.op, ctx.seen.last
    if last is None or last.action != "TryObjects":
        desired = ctx.spec or spec
        job_id = op.job_id or ctx.new_job_id(op.id)
        incarnation = Incarnation(
            op.target_revision or "",
            with_worker_memory(spec, op.worker_memory),
            job_id,
            op.restore or _ANY_STATE,
            spec.job.parallelism,
            service_suffix=SERVICE_SUFFIXES[0],
        )
        workers = worker_count(spec, desired, spec.job.parallelism)
        return ctx.act(
            TryObjects(incarnation, desired, workers), "asking the API server whether it accepts the objects"
        )
    if last.ok:
        return ctx.with_op(accepted=True, blocked=None, message="").done()
    if last.code == "InvalidObject":
        return ctx.reject(last.code, explain(last))
    blocked = last.code if last.code in REFUSALS else None
    return ctx.wait(explain(last), blocked=blocked, after=ctx.settings.backoff_first)


def _launch(ctx: Context) -> Decision:
    op = ctx.op
    former = next((p for p in ctx.seen.leaving if p.operation == op.id), None)
    if former is not None:
        return _delete_former_check(ctx, former)
    spec = ctx.revision_spec(op.target_revision)
    failure = ctx.failed_action("RunCheck")
    if spec is None or failure is not None:
        message = explain(failure) if failure else ""
        return ctx.wait(message, blocked=failure.code if failure else None, after=ctx.settings.backoff_first)
    against = op.restore.path if op.restore else None
    stateless = (ctx.spec or spec).job.upgrade_mode == "stateless"
    if op.restore is None and ctx.status.running is not None and not stateless:
        storage = ctx.seen.storage
        if not storage.was_read or storage.error:
            return ctx.wait_for_storage("looking for the newest checkpoint to check against")
        against = storage.newest.path if storage.newest else None
    action = RunCheck(op.id, op.target_revision or "", spec, against)
    message = op.message if op.attempt else CHECKING
    # The time limit of the check starts with its pod. The operation may have waited before, for example for a Secret.
    return ctx.with_op(message=message, retry_at=None, step_since=ctx.now).done(action, after=ctx.settings.progress)


def _delete_former_check(ctx: Context, former: LeavingCheck) -> Decision:
    """Delete a former check pod whose name the next check pod needs. A pod on a lost node never ends by itself.

    The pod is deleted from the API by force, although it may still run. This is only safe for a check pod. A check pod
    writes no state and commits nothing, and its verdict is no longer needed. A master on a lost node may complete a
    checkpoint and commit at any time. So the operator deletes a master by force only after it has fenced the master
    (`operations.stop`). If it cannot fence the master, it waits for the master.
    """
    op = ctx.op
    if ctx.now - former.since < CHECK_GONE_AFTER:
        return ctx.wait(op.message if op.blocked else f"waiting for the pod {former.name} to end", blocked=op.blocked)
    text = f"{former.name} does not end, because its node does not respond. The operator deletes it by force and starts another check"
    return ctx.with_event("CheckPodAbandoned", text, warning=True).done(
        DeleteCheck(former.name, force=True), after=ctx.settings.progress
    )


def _decide_by_check(ctx: Context, pod: CheckPod) -> Decision:
    if pod.state == "Passed":
        if pod.warnings:
            ctx = ctx.with_event("MemoryTight", "; ".join(pod.warnings), warning=True)
        if pod.state_changes:
            ctx = _with_state_changes_event(ctx, pod.state_changes)
        return ctx.with_event("CheckPassed", _passed(ctx.op.target_revision or "", pod)).advance()
    if pod.state == "Refused" and any(p.code == "STORAGE" for p in pod.problems):
        found = "; ".join(str(p) for p in pod.problems)
        return _check_again(ctx, pod, "StorageUnavailable", f"{found}. {_ACCESS}")
    if pod.state == "Interrupted":
        return _check_again(ctx, pod, *_interrupted(ctx, pod))
    if _restores_newer_state(ctx.op) and pod.state in ("Refused", "Crashed", "Overdue"):
        problems = "; ".join(str(p) for p in pod.problems) or pod.output or "penstock check reported no result"
        return _rollback_blocked(ctx, pod, problems)
    if pod.state == "Refused":
        found = "; ".join(str(p) for p in pod.problems) or "penstock check gave no reason"
        named = _state_was_named(ctx) and any(p.code in _OF_THE_STATE for p in pod.problems)
        field = "spec.job.startFrom" if ctx.op.source == LATEST else "spec.job.initialSavepointPath"
        return ctx.reject("CheckFailed", f"{field}: {found}" if named else found)
    if pod.state == "Crashed":
        return ctx.reject("CheckCrashed", f"penstock check ended without a result: {pod.output}")
    started = max(ctx.op.step_since, pod.started or ctx.op.step_since)
    if pod.state == "Overdue" or (pod.state == "Running" and ctx.now - started > CHECK_TIMEOUT):
        return ctx.reject("CheckTimeout", f"penstock check did not end within {CHECK_TIMEOUT}: {pod.output}")
    if pod.trouble is not None:
        return ctx.wait(f"the check pod: {pod.trouble}", blocked=pod.trouble.reason)
    known = _UNTIL_JUDGED if pod.state == "Running" else _UNTIL_JUDGED | _UNTIL_STARTED
    if ctx.op.attempt and ctx.op.blocked in known:
        return ctx.wait(ctx.op.message, blocked=ctx.op.blocked)
    return ctx.wait(CHECKING)


def _with_state_changes_event(ctx: Context, changes: tuple[str, ...]) -> Context:
    """Return the context with the event that a restore migrates state or starts it empty. The event is emitted once per
    revision.
    """
    named = "; ".join(changes[:_MOST_NAMED])
    more = f"; and {len(changes) - _MOST_NAMED} more, see the log of the check" if len(changes) > _MOST_NAMED else ""
    text = f"{ctx.op.target_revision} changes state when it is restored: {named}{more}"
    return ctx.with_event("StateChanged", text, warning=True, key=f"{ctx.op.target_revision}/StateChanged")


def _passed(revision: str, pod: CheckPod) -> str:
    """Describe the result of the check, and the states that the check did not compare. The check reads the declared
    states from the source code of the functions' `open` methods, which it never calls.
    """
    not_compared = pod.not_looked_at
    if not not_compared:
        return f"{revision} imports, builds its graph and accepts the state"
    named = "; ".join(not_compared[:_MOST_NAMED]) + (" …" if len(not_compared) > _MOST_NAMED else "")
    return (
        f"{revision} imports, builds its graph and accepts the compared state. The check could not see the states that these "
        f"statements may declare: {named}"
    )


def _state_was_named(ctx: Context) -> bool:
    """Return whether the spec has chosen the state that the check uses."""
    op = ctx.op
    return op.kind in ("Deploy", "Redeploy") and op.restore is not None and op.restore.path is not None


def _interrupted(ctx: Context, pod: CheckPod) -> tuple[str, str]:
    """Return reason and message of an interruption. Prefer the reason why the pod could not start, because a user can
    fix it.
    """
    op, trouble = ctx.op, pod.trouble
    if trouble is not None and trouble.reason in _UNTIL_STARTED:
        return trouble.reason, f"the check pod: {trouble}"
    if op.blocked in _UNTIL_STARTED:
        return op.blocked, op.message
    return "CheckInterrupted", str(trouble)


def _check_again(ctx: Context, pod: CheckPod, reason: str, message: str) -> Decision:
    """Report a problem that may be fixed without an edit of the spec, and repeat the check in a new pod."""
    op = ctx.op
    if op.retry_at is None:
        attempt = op.attempt + 1
        pause = ctx.settings.backoff(attempt)
        ctx = ctx.with_op(attempt=attempt, retry_at=ctx.now + pause)
        return ctx.wait(message, blocked=reason, after=pause)
    if ctx.now < op.retry_at:
        return ctx.wait(op.message, blocked=op.blocked, after=op.retry_at - ctx.now)
    return ctx.with_op(retry_at=None, step_since=ctx.now).done(DeleteCheck(pod.name), after=ctx.settings.progress)
