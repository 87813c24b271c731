"""Before anything is touched: is the savepoint there, does the new image work, does its graph take the state?"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.api.status import Restore
from penstock_operator.reconcile.decide.actions import DeleteCheck, RunCheck, TryObjects
from penstock_operator.reconcile.decide.decision import Decision
from penstock_operator.reconcile.decide.operations.look_back import look_back
from penstock_operator.reconcile.decide.refusals import REFUSALS, explain
from penstock_operator.reconcile.decide.restore.predecessor import LATEST
from penstock_operator.resources.incarnation import DOORS, Incarnation, worker_count

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status import Operation
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.observation import CheckPod, LeavingCheck

CHECK_TIMEOUT = timedelta(minutes=10)
CHECK_GONE_AFTER = timedelta(minutes=1)
"""A check pod that is still being deleted so long after its end is on a node that does not answer."""
_ANY_STATE = Restore(kind="Latest", reason="not known before the job has stopped")
CHECKING = "checking the new revision in a pod of its own"
_ACCESS = "Correct spec.storage (spec.storage.secretName names the keys), or give access; it is checked again"
_OF_THE_STATE = frozenset({"RESTORE_REFUSED", "STATE_SCHEMA_INCOMPATIBLE"})
_UNTIL_STARTED = frozenset({"ImagePullFailed", "ContainerConfigError"})
"""What keeps a check from starting; told, from pod to pod, until one starts."""
_MOST_NAMED = 3
"""Places that an event names."""
_UNTIL_JUDGED = frozenset({"StorageUnavailable", "CheckInterrupted", "RollbackBlocked"})
"""Why a check is made again; told until it has ended."""


def verify(ctx: Context) -> Decision:
    """Read the snapshot that the job is to be started from."""
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
    """Prove the new revision in a pod of its own."""
    op = ctx.op
    spec = ctx.revision_spec(op.target_revision)
    if spec is None:
        return ctx.wait(f"revision {op.target_revision} is not stored yet")
    proven = op.kind != "Redeploy" and op.target_revision == ctx.status.stable_revision
    if _goes_back_with_new_state(op):
        pass
    elif proven:
        return ctx.advance()
    elif not op.accepted:
        return _try_objects(ctx, spec)
    elif not spec.upgrade.check:
        return ctx.advance()
    pod = ctx.seen.check
    if pod is None:
        return _launch(ctx)
    if pod.operation != op.id:
        return ctx.act(DeleteCheck(pod.name))
    return _judge(ctx, pod)


def _goes_back_with_new_state(op: Operation) -> bool:
    """A rollback to a proven revision, from a checkpoint of the one that failed, which nobody has shown it yet."""
    before = op.fallback_restore.path if op.fallback_restore is not None else None
    return op.kind == "Rollback" and op.restore is not None and op.restore.path != before


def _rollback_blocked(ctx: Context, pod: CheckPod, why: str) -> Decision:
    """What the failed revision has committed cannot be taken over, and going behind it repeats output: a person decides."""
    op = ctx.op
    start = op.restore.path if op.restore is not None else None
    before = op.fallback_restore.path if op.fallback_restore is not None else None
    repeat = (
        f"set job.initialSavepointPath to {before} and change job.savepointRedeployNonce, with the old program in the spec"
        if before
        else "start anew from empty state (job.upgradeMode stateless)"
    )
    text = (
        f"the revision that failed has completed checkpoints, so its output up to {start} is committed, and "
        f"{op.target_revision} does not take that state: {why}. Nothing runs and nothing is thrown away. Either stay: edit the "
        f"spec so that it takes that state (or change job.restartNonce), and nothing is repeated. Or go back: {repeat}; output "
        "since then comes again"
    )
    return _check_again(ctx, pod, "RollbackBlocked", text)


def _try_objects(ctx: Context, spec: FlinkJobSpec) -> Decision:
    """Whether the API server would take the Deployments and what else users shape: the check pod does not show that."""
    op, last = ctx.op, ctx.seen.last
    if last is None or last.action != "TryObjects":
        desired = ctx.spec or spec
        job_id = op.job_id or ctx.new_job_id(op.id)
        incarnation = Incarnation(
            op.target_revision or "", spec, job_id, op.restore or _ANY_STATE, spec.job.parallelism, door=DOORS[0]
        )
        workers = worker_count(spec, desired, spec.job.parallelism)
        return ctx.act(TryObjects(incarnation, desired, workers), "asking the API server whether it takes the objects")
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
        return _make_way(ctx, former)
    spec = ctx.revision_spec(op.target_revision)
    failure = ctx.failed_action("RunCheck")
    if spec is None or failure is not None:
        message = explain(failure) if failure else ""
        return ctx.wait(message, blocked=failure.code if failure else None, after=ctx.settings.backoff_first)
    against = op.restore.path if op.restore else None
    stateless = (ctx.spec or spec).job.upgrade_mode == "stateless"
    if op.restore is None and ctx.status.running is not None and not stateless:
        storage = ctx.seen.storage
        if not storage.asked or storage.error:
            return ctx.wait_for_storage("looking for the newest checkpoint to check against")
        against = storage.newest.path if storage.newest else None
    action = RunCheck(op.id, op.target_revision or "", spec, against)
    message = op.message if op.attempt else CHECKING
    return ctx.with_op(message=message, retry_at=None).done(action, after=ctx.settings.progress)


def _make_way(ctx: Context, former: LeavingCheck) -> Decision:
    """The next check pod has the name of one that is being deleted, which on a lost node nobody ever ends.

    It is taken out of the API by force, although it may run on where nobody sees it. That is safe for a check pod, and
    only for that: it reads, writes no state, commits nothing, and its verdict is no longer asked for. A master on a lost
    node may complete a checkpoint and commit at any time; so it is removed by force only after it was fenced off
    (`operations.stop`), and where that cannot be done it is waited for.
    """
    op = ctx.op
    if ctx.now - former.since < CHECK_GONE_AFTER:
        return ctx.wait(op.message if op.blocked else f"waiting for the pod {former.name} to go", blocked=op.blocked)
    text = f"{former.name} does not go: its node does not answer. It is removed by force, and another one checks"
    return ctx.tell("CheckPodAbandoned", text, warning=True).done(
        DeleteCheck(former.name, force=True), after=ctx.settings.progress
    )


def _judge(ctx: Context, pod: CheckPod) -> Decision:
    if pod.state == "Passed":
        if pod.warnings:
            ctx = ctx.tell("MemoryTight", "; ".join(pod.warnings), warning=True)
        return ctx.tell("CheckPassed", _passed(ctx.op.target_revision or "", pod)).advance()
    if pod.state == "Refused" and any(p.code == "STORAGE" for p in pod.problems):
        found = "; ".join(str(p) for p in pod.problems)
        return _check_again(ctx, pod, "StorageUnavailable", f"{found}. {_ACCESS}")
    if pod.state == "Interrupted":
        return _check_again(ctx, pod, *_interrupted(ctx, pod))
    if _goes_back_with_new_state(ctx.op) and pod.state in ("Refused", "Crashed", "Overdue"):
        said = "; ".join(str(p) for p in pod.problems) or pod.output or "penstock check gave no verdict"
        return _rollback_blocked(ctx, pod, said)
    if pod.state == "Refused":
        found = "; ".join(str(p) for p in pod.problems) or "penstock check gave no reason"
        named = _state_was_named(ctx) and any(p.code in _OF_THE_STATE for p in pod.problems)
        field = "spec.job.startFrom" if ctx.op.source == LATEST else "spec.job.initialSavepointPath"
        return ctx.reject("CheckFailed", f"{field}: {found}" if named else found)
    if pod.state == "Crashed":
        return ctx.reject("CheckCrashed", f"penstock check ended without a verdict: {pod.output}")
    begun = max(ctx.op.step_since, pod.started or ctx.op.step_since)
    if pod.state == "Overdue" or (pod.state == "Running" and ctx.now - begun > CHECK_TIMEOUT):
        return ctx.reject("CheckTimeout", f"penstock check did not end within {CHECK_TIMEOUT}: {pod.output}")
    if pod.trouble is not None:
        return ctx.wait(f"the check pod: {pod.trouble}", blocked=pod.trouble.reason)
    known = _UNTIL_JUDGED if pod.state == "Running" else _UNTIL_JUDGED | _UNTIL_STARTED
    if ctx.op.attempt and ctx.op.blocked in known:
        return ctx.wait(ctx.op.message, blocked=ctx.op.blocked)
    return ctx.wait(CHECKING)


def _passed(revision: str, pod: CheckPod) -> str:
    """What is proven, and what is not: states are read out of `open`, which is not called."""
    unseen = pod.not_looked_at
    if not unseen:
        return f"{revision} imports, builds its graph and takes the state"
    named = "; ".join(unseen[:_MOST_NAMED]) + (" …" if len(unseen) > _MOST_NAMED else "")
    return (
        f"{revision} imports, builds its graph and takes the state as far as it was looked at. Not looked at were states "
        f"that may be declared here: {named}"
    )


def _state_was_named(ctx: Context) -> bool:
    """The state that the check looks at was chosen by the spec."""
    op = ctx.op
    return op.kind in ("Deploy", "Redeploy") and op.restore is not None and op.restore.path is not None


def _interrupted(ctx: Context, pod: CheckPod) -> tuple[str, str]:
    """Reason and message: what kept the pod from starting, where that is known, for a person can do something about it."""
    op, trouble = ctx.op, pod.trouble
    if trouble is not None and trouble.reason in _UNTIL_STARTED:
        return trouble.reason, f"the check pod: {trouble}"
    if op.blocked in _UNTIL_STARTED:
        return op.blocked, op.message
    return "CheckInterrupted", str(trouble)


def _check_again(ctx: Context, pod: CheckPod, reason: str, message: str) -> Decision:
    """What may be mended without an edit of the spec, or mends itself: say so, and try again in a new pod."""
    op = ctx.op
    if op.retry_at is None:
        attempt = op.attempt + 1
        pause = ctx.settings.backoff(attempt)
        ctx = ctx.with_op(attempt=attempt, retry_at=ctx.now + pause)
        return ctx.wait(message, blocked=reason, after=pause)
    if ctx.now < op.retry_at:
        return ctx.wait(op.message, blocked=op.blocked, after=op.retry_at - ctx.now)
    return ctx.with_op(retry_at=None, step_since=ctx.now).done(DeleteCheck(pod.name), after=ctx.settings.progress)
