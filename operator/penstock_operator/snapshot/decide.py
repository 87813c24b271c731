"""The next step for one FlinkSnapshot. Pure functions. The first row that matches applies:

    state        │ observation                                   │ next step
    ─────────────┼───────────────────────────────────────────────┼────────────────────────────────────────────────────────
    (deleting)   │ the engine writes its savepoint               │ wait for its end or the timeout, then delete the files
                 │ a FlinkJob may still need the savepoint       │ wait as long as that FlinkJob exists
                 │ an attempt's folder has files of the operator │ delete the files, then remove the finalizer
                 │ storage does not respond until the timeout    │ report it, keep the files, remove the finalizer
    Pending      │ the spec names an existing savepoint          │ verify → Completed, or Failed
                 │ the last attempt has completed late           │ Completed
                 │ the FlinkJob existed and no longer exists     │ Abandoned
                 │ the job is RUNNING and is not being changed   │ choose folder and id → InProgress → trigger
                 │ otherwise                                     │ wait and report the reason
    InProgress   │ the folder has a complete savepoint           │ Completed, whatever the engine reports
                 │ request failed or timed out, or job replaced  │ Pending again after a pause, or Failed
                 │ the engine does not know the request          │ request again with the same id
    final states │ Completed, Failed or Abandoned                │ nothing

An arrow leads to the next state, which the operator writes before it acts.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock_operator.api.flinksnapshot import FlinkSnapshotStatus
from penstock_operator.api.status.flinkjob_status import Condition
from penstock_operator.reconcile.decide.decision import Event
from penstock_operator.reconcile.decide.flows import is_waiting, leaves_alone
from penstock_operator.resources.names import FINALIZER, JOB, is_savepoint_of, snapshot_folder
from penstock_operator.snapshot.access import accesses, has_known_maker, own_access
from penstock_operator.snapshot.actions import Dispose, Protect, Release, SnapshotDecision, TakeSnapshot
from penstock_operator.snapshot.context import trigger_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from typing import Literal

    from penstock_operator.api.status.operation import Operation
    from penstock_operator.snapshot.context import SnapshotContext


ATTEMPTS_KEPT = 100
"""Maximum number of recorded folders of earlier attempts. Only a FlinkSnapshot with a backoffLimit of -1 can have more
attempts.
"""
DISPOSAL_TIMEOUT = timedelta(minutes=30)
KEYS_TIMEOUT = timedelta(minutes=1)
"""Timeout of the disposal if the Secret for the storage was deleted with the FlinkJob, as in a namespace that is
being deleted.
"""
FINAL = frozenset({"Completed", "Failed", "Abandoned"})
QUIET_OPERATIONS = frozenset({"Rescale", "Deploy", "Resume", "Upgrade", "Redeploy", "Rollback", "Recover"})
"""Operations whose last step (Watch) is not disturbed by a snapshot."""


def is_settled(manifest: Mapping[str, Any]) -> bool:
    """Return whether the operator has nothing to do until a user deletes the object, whatever happens to its
    FlinkJob.

    The function takes the raw object, so that hundreds of settled objects need no task and no read. The conditions must have
    been written for the current generation. The operator's finalizer must be present, because the deletion still
    needs it.
    """
    meta, status = manifest.get("metadata", {}), manifest.get("status") or {}
    written = status.get("observedGeneration") == meta.get("generation")
    ends = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    is_reported = ends.get("Ready" if status.get("state") == "Completed" else "Stalled") == "True"
    kept = FINALIZER in (meta.get("finalizers") or ()) and JOB in (meta.get("labels") or {})
    return status.get("state") in FINAL and written and is_reported and kept and "deletionTimestamp" not in meta


def decide(ctx: SnapshotContext) -> SnapshotDecision:
    """Return the next step, and the status with current conditions."""
    decision = _next(_with_job_record(ctx))
    return replace(decision, status=_report(ctx, decision.status))


def unreadable(
    status: FlinkSnapshotStatus, generation: int, now: datetime, reason: str, message: str
) -> FlinkSnapshotStatus:
    """Return the status of a FlinkSnapshot that cannot be evaluated. It keeps the known fields and reports the
    reason.
    """
    truths: tuple[tuple[str, Literal["True", "False", "Unknown"]], ...] = (
        ("Ready", "Unknown"),
        ("Reconciling", "False"),
        ("Stalled", "True"),
    )
    status = status.model_copy(update={"message": message})
    conditions = tuple(_judged(status, generation, now, kind, truth, reason) for kind, truth in truths)
    return status.model_copy(update={"conditions": conditions})


def _next(ctx: SnapshotContext) -> SnapshotDecision:
    if ctx.deleting_since is not None:
        return _deleting(ctx)
    if not ctx.protected:
        return SnapshotDecision(ctx.status, Protect(), requeue=ctx.settings.backoff_first if ctx.failure else None)
    if ctx.status.state in FINAL:
        return _done(ctx, after=ctx.settings.resync * 60)
    registered = ctx.spec.savepoint.path if ctx.spec.savepoint is not None else None
    if registered is not None and (ctx.job is not None or ctx.status.storage is not None):
        return _register(ctx, registered)
    if ctx.job_is_gone:
        return _orphaned(ctx)
    if ctx.job is None:
        return _wait(ctx, f"the FlinkJob {ctx.spec.job_ref.name} does not exist", after=ctx.settings.resync)
    if ctx.job.deleting and ctx.status.state == "Pending":
        return _end(ctx, "Abandoned", f"FlinkJob {ctx.spec.job_ref.name} is being deleted")
    if ctx.status.state not in ("Pending", "InProgress"):
        text = f"the state {ctx.status.state} was written by another version of the operator, so this version changes nothing"
        return _wait(ctx, text, after=ctx.settings.resync)
    return _pending(ctx) if ctx.status.state == "Pending" else _in_progress(ctx)


def _orphaned(ctx: SnapshotContext) -> SnapshotDecision:
    """Decide about a FlinkSnapshot without a FlinkJob. An attempt may have completed before the FlinkJob was deleted."""
    late, tried = ctx.storage.sealed, ctx.status.target_directory is not None and ctx.kind == "savepoint"
    if late is not None:
        return _complete(_with(ctx, path=late.path, checkpoint_id=late.checkpoint_id), late.time)
    if tried and not ctx.keys_are_gone and (not ctx.storage.was_read or ctx.storage.error):
        return _wait(ctx, ctx.storage.error or "looking for a savepoint that became complete late")
    return _end(ctx, "Abandoned", f"FlinkJob {ctx.spec.job_ref.name} no longer exists")


def _register(ctx: SnapshotContext, path: str) -> SnapshotDecision:
    verdict = ctx.storage.verdict(path)
    if verdict is None:
        return _wait(ctx, ctx.storage.error or f"verifying {path}")
    if not verdict.ok:
        return _end(ctx, "Failed", f"{path} cannot be restored from: {verdict.reason}")
    updates = {"path": path, "checkpoint_id": verdict.checkpoint_id, "storage": ctx.opened or ctx.status.storage}
    if ctx.is_made_by_a_stop:
        updates["made_for"] = ctx.uid
    return _complete(_with(ctx, **updates), verdict.time)


def _pending(ctx: SnapshotContext) -> SnapshotDecision:
    status, job = ctx.status, ctx.job
    late = ctx.storage.sealed
    if late is not None:
        return _complete(_with(ctx, path=late.path, checkpoint_id=late.checkpoint_id), late.time)
    if job is None or job.spec is None:
        return _wait(ctx, "the FlinkJob's spec is not valid")
    if status.next_retry_at is not None and ctx.now < status.next_retry_at:
        return _done(ctx, after=status.next_retry_at - ctx.now)
    op, running = job.status.operation, job.status.running
    if op is not None and not _allows_snapshot(ctx, op):
        return _wait(ctx, f"FlinkJob {ctx.spec.job_ref.name} is being changed ({op.kind})")
    if running is None or not ctx.engine.running:
        return _wait(ctx, f"a {ctx.kind} needs a RUNNING job, this one is {ctx.engine.state or job.status.phase}")
    trigger = trigger_id(ctx.uid, status.failures)
    folder = snapshot_folder(ctx.namespace, ctx.spec.job_ref.name, job.uid, ctx.name, ctx.uid, status.failures)
    directory = f"{job.spec.storage.savepoints}/{folder}"
    before = (*status.former_directories, *filter(None, [status.target_directory]))
    ctx = _with(
        ctx,
        former_directories=before[-ATTEMPTS_KEPT:],
        state="InProgress",
        job_uid=job.uid,
        made_for=ctx.uid,
        message=f"the {ctx.kind} is being written",
        job_id=running.job_id,
        trigger_id=trigger,
        request_id=None,
        target_directory=directory,
        started_at=ctx.now,
        storage=own_access(ctx, running.revision),
    )
    return SnapshotDecision(ctx.status, TakeSnapshot(ctx.kind, running.job_id, directory, trigger), ctx.events)


def _allows_snapshot(ctx: SnapshotContext, op: Operation) -> bool:
    """Return whether a snapshot can be taken during an operation, because the operation waits and does not change the
    running job.
    """
    if op.step == "Watch":
        return op.kind in QUIET_OPERATIONS or op.blocked is not None
    return op.trigger_id is None and leaves_alone(op) and is_waiting(op, ctx.now, ctx.settings.upkeep_patience)


def _in_progress(ctx: SnapshotContext) -> SnapshotDecision:
    status, job = ctx.status, ctx.job
    sealed, request = ctx.storage.sealed, ctx.engine.request
    if sealed is not None:
        return _complete(_with(ctx, path=sealed.path, checkpoint_id=sealed.checkpoint_id), sealed.time)
    if request is not None and request.state == "Completed":
        return _engine_completed(ctx)
    if request is not None and request.state == "Failed":
        return _retry(ctx, request.cause)
    if ctx.failure:
        return _retry(ctx, ctx.failure)
    timeout = ctx.spec.timeout or (job.spec.upgrade.savepoint_timeout if job and job.spec else timedelta(minutes=10))
    replaced = job is not None and (job.status.running is None or job.status.running.job_id != status.job_id)
    if replaced and ctx.storage.was_read and not ctx.storage.error:
        return _retry(ctx, f"the job was restarted with new pods before the {ctx.kind} was complete")
    if status.started_at is not None and ctx.now - status.started_at > timeout:
        return _retry(ctx, f"the {ctx.kind} was not complete within {timeout}")
    unknown = request is not None and request.state == "Unknown" and ctx.engine.running
    if unknown and status.job_id and status.target_directory and status.trigger_id:
        action = TakeSnapshot(ctx.kind, status.job_id, status.target_directory, status.trigger_id)
        return SnapshotDecision(ctx.status, action, ctx.events)
    return _done(ctx, after=ctx.settings.progress)


def _engine_completed(ctx: SnapshotContext) -> SnapshotDecision:
    request = ctx.engine.request
    if ctx.kind == "savepoint":
        if request is not None and request.location and ctx.storage.was_read and not ctx.storage.error:
            return _retry(ctx, f"the engine reports {request.location} as complete, but the operator cannot read it")
        return _wait(ctx, ctx.storage.error or "verifying")
    points = ctx.engine.checkpoints
    return _complete(_with(ctx, path=points.latest_path, checkpoint_id=points.latest_id), points.latest_at)


def _complete(ctx: SnapshotContext, time: datetime | None) -> SnapshotDecision:
    ctx = _with(ctx, completed_at=time or ctx.now)
    return _end(ctx, "Completed", "")


def _retry(ctx: SnapshotContext, reason: str) -> SnapshotDecision:
    failures, limit = ctx.status.failures + 1, ctx.spec.backoff_limit
    text = reason[: ctx.settings.text_limit]
    if limit >= 0 and failures > limit:
        return _end(_with(ctx, failures=failures), "Failed", f"{text}; given up after {failures} attempts")
    pause = ctx.settings.backoff(failures)
    cleared = {"trigger_id": None, "request_id": None, "started_at": None}
    ctx = _with(ctx, state="Pending", failures=failures, message=text, next_retry_at=ctx.now + pause, **cleared)
    event = Event("SnapshotFailed", f"{text}; next attempt in {pause}", "Warning", key=f"{ctx.uid}/failed/{failures}")
    return SnapshotDecision(ctx.status, None, (*ctx.events, event), pause)


def _end(ctx: SnapshotContext, state: str, message: str) -> SnapshotDecision:
    ctx = _with(ctx, state=state, message=message, next_retry_at=None)
    text = message or f"{ctx.kind} at {ctx.status.path}"
    event = Event(f"Snapshot{state}", text, "Normal" if state == "Completed" else "Warning", key=f"{ctx.uid}/{state}")
    return SnapshotDecision(ctx.status, None, (*ctx.events, event), None)


def _deleting(ctx: SnapshotContext) -> SnapshotDecision:
    if not ctx.protected:
        return _done(ctx, after=ctx.settings.resync)
    if _is_under_way(ctx):
        return _wait(
            ctx, "waiting for the savepoint that is being written, to delete its files", after=ctx.settings.progress
        )
    unread = ctx.storage.error if ctx.folders else ""
    undeleted = [path for path in _files(ctx) if path not in ctx.disposed]
    if not undeleted and not unread:
        return SnapshotDecision(ctx.status, Release(), requeue=ctx.settings.backoff_first if ctx.failure else None)
    needing = sorted(name for name, paths in ctx.needed.items() if not paths.isdisjoint(undeleted))
    if needing:
        more = f" and {len(needing) - 3} more" if len(needing) > 3 else ""
        text = f"kept: a restore of FlinkJob {', '.join(needing[:3])}{more} may need it"
        return _wait(ctx, text, after=ctx.settings.resync)
    failure, since = ctx.failure or ("" if undeleted else unread), ctx.deleting_since or ctx.now
    patience = KEYS_TIMEOUT if ctx.keys_are_gone else DISPOSAL_TIMEOUT
    if ctx.now - since > patience and failure:
        text = f"the files at {', '.join(undeleted or ctx.folders)} could not be deleted: {failure}"
        event = Event("FilesKept", text, "Warning", key=f"{ctx.uid}/kept")
        return SnapshotDecision(ctx.status, Release(), (event,))
    if failure:
        return _wait(ctx, f"deleting the files: {failure}", after=ctx.settings.backoff_first)
    return SnapshotDecision(ctx.status, Dispose(undeleted[0]), ctx.events)


def _is_under_way(ctx: SnapshotContext) -> bool:
    """Return whether the engine may still complete the attempt. If the object were deleted now, the files would never
    be deleted.
    """
    status, job, request = ctx.status, ctx.job, ctx.engine.request
    if status.state != "InProgress" or not ctx.folders or job is None or job.status.running is None:
        return False
    limit = ctx.spec.timeout or (job.spec.upgrade.savepoint_timeout if job.spec else timedelta(minutes=10))
    late = status.started_at is None or ctx.now - status.started_at > limit
    over = request is not None and request.state != "InProgress"
    return job.status.running.job_id == status.job_id and not late and not over


def _files(ctx: SnapshotContext) -> tuple[str, ...]:
    """Return the files to delete together with the object: its savepoint, and savepoints of earlier attempts that
    completed late.
    """
    if not ctx.disposes:
        return ()
    job = ctx.spec.job_ref.name
    found = (path for path in (ctx.status.path, *ctx.storage.within) if path)
    return tuple(dict.fromkeys(path for path in found if is_savepoint_of(ctx.namespace, job, path)))


def _with_job_record(ctx: SnapshotContext) -> SnapshotContext:
    """Record the uid of the FlinkJob and the storage settings, before the FlinkJob and its revisions can be deleted."""
    if ctx.status.job_uid is None and ctx.job is not None and ctx.status.state not in FINAL:
        ctx = _with(ctx, job_uid=ctx.job.uid)
    known = ctx.status.storage is None and has_known_maker(ctx)
    return _with(ctx, storage=accesses(ctx)[0]) if known else ctx


def _with(ctx: SnapshotContext, **changes: Any) -> SnapshotContext:
    return replace(ctx, status=ctx.status.model_copy(update=changes))


def _done(ctx: SnapshotContext, *, after: timedelta) -> SnapshotDecision:
    return SnapshotDecision(ctx.status, None, ctx.events, after)


def _wait(ctx: SnapshotContext, message: str, *, after: timedelta | None = None) -> SnapshotDecision:
    return _done(_with(ctx, message=message), after=after or ctx.settings.progress * 2)


def _report(ctx: SnapshotContext, status: FlinkSnapshotStatus) -> FlinkSnapshotStatus:
    final_failure = status.state in ("Failed", "Abandoned")
    orphan = ctx.job is None and status.state not in FINAL
    truths = {
        "Ready": (status.state == "Completed", status.state),
        "Reconciling": (status.state not in FINAL and not orphan, status.state),
        "Stalled": (final_failure or orphan, "NoSuchJob" if orphan else status.state),
    }
    conditions = tuple(_condition(ctx, status, kind, holds, reason) for kind, (holds, reason) in truths.items())
    return status.model_copy(update={"conditions": conditions, "observed_generation": ctx.generation})


def _condition(ctx: SnapshotContext, status: FlinkSnapshotStatus, kind: str, holds: bool, reason: str) -> Condition:
    return _judged(status, ctx.generation, ctx.now, kind, "True" if holds else "False", reason)


def _judged(
    status: FlinkSnapshotStatus,
    generation: int,
    now: datetime,
    kind: str,
    truth: Literal["True", "False", "Unknown"],
    reason: str,
) -> Condition:
    before = next((c for c in status.conditions if c.type == kind), None)
    same = before is not None and before.status == truth
    return Condition(
        type=kind,
        status=truth,
        reason=reason,
        message=status.message,
        observed_generation=generation,
        last_transition_time=before.last_transition_time if same and before else now,
    )
