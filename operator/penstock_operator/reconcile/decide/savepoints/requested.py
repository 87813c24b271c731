"""The record of requested savepoints, so that each one gets a FlinkSnapshot. Pure functions.

An upgrade, a suspension or a deletion stops the job with a savepoint. The outcome is not known at the time of the
request. An attempt may time out, but its savepoint may complete later. By that time, another attempt may be in
progress, the job may continue, or its pods may end. The operation may also be rolled back, or wait for a user. So
each request is recorded with its folder before it is sent (`status.requestedSavepoints`). The entry remains until one of
these actions removes it:

    content of the folder   incarnation                 action
    ──────────────────────  ──────────────────────────  ──────────────────────────────────────────────────────────────
    a complete savepoint    any                         create a FlinkSnapshot, then remove the entry
    none                    has ended, its pods are     remove the entry, because no savepoint can appear later
                            gone
    none                    still runs                  read the folder again every minute. After an hour, remove the
                                                        entry
    storage is silent       any                         read the folder again

If a FlinkSnapshot cannot be created, other work continues, and the creation is tried again. A deletion waits for the
creation for a short time, because nothing else would create the FlinkSnapshot. An event then reports what the deletion
leaves behind.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.api.status.snapshots import RequestedSavepoint
from penstock_operator.reconcile.decide.actions import CreateSnapshot
from penstock_operator.reconcile.decide.storage_settings import disposal_specs

if TYPE_CHECKING:
    from datetime import datetime

    from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
    from penstock_operator.api.status.incarnation import Running
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision

MAX_RECORDS = 20
SEARCH_INTERVAL = timedelta(minutes=1)
COMPLETION_LIMIT = timedelta(hours=1)
"""Maximum time after the request at which a savepoint may still complete. The engine gives up much earlier."""
_NAMED = 3


def with_requested_savepoint(ctx: Context, directory: str, running: Running) -> Context:
    """Return the same context with the savepoint recorded. Call it before the request to the engine."""
    entry = RequestedSavepoint(
        directory=directory, kind=ctx.op.kind, job_id=running.job_id, revision=running.revision, time=ctx.now
    )
    return ctx.with_status(requested_savepoints=(*ctx.status.requested_savepoints, entry)[-MAX_RECORDS:])


def with_completed_savepoint(ctx: Context, path: str) -> Context:
    """Return the same context with the savepoint of the folder recorded as complete."""
    entries = (
        entry.model_copy(update={"path": path, "retry_at": None}) if path.startswith(f"{entry.directory}/") else entry
        for entry in ctx.status.requested_savepoints
    )
    return ctx.with_status(requested_savepoints=tuple(entries))


def late_folders(status: FlinkJobStatus, now: datetime) -> tuple[str, ...]:
    """Return the folders to read, except the folder that the operation waits for. A deletion reads the folders once,
    when the pods are gone.
    """
    op = status.operation
    if op is not None and op.kind == "Delete" and op.step != "Dispose":
        return ()
    awaited = op.target_directory if op is not None and op.step in ("Stop", "Seal") and op.trigger_id else None
    sealing = op.target_directory if op is not None and op.step == "Seal" else None
    last_search = op is not None and op.step == "Dispose"
    return tuple(
        entry.directory
        for entry in status.requested_savepoints
        if entry.path is None
        and entry.directory not in (awaited, sealing)
        and (last_search or entry.retry_at is None or now >= entry.retry_at)
    )


def with_recorded_savepoints(ctx: Context) -> Context | Decision:
    """Record savepoints that completed late, and create the FlinkSnapshot that is due. Return the context if no
    action is necessary.
    """
    if not ctx.status.requested_savepoints:
        return ctx
    ctx = _with_late_savepoints(ctx)
    for entry in ctx.status.requested_savepoints:
        if entry.path is None:
            continue
        name = snapshot_name(ctx, entry)
        existing = next((s for s in ctx.seen.snapshots if s.name == name), None)
        if existing is not None and not existing.recorded and existing.state == "Pending" and not existing.deleting:
            continue  # the FlinkSnapshot still needs this entry as proof that its files were created for it
        if existing is not None:
            ctx = _with_recorded_savepoint(ctx, entry, name)
        elif ctx.failed_action("CreateSnapshot") is not None:
            ctx = _with_changed_entry(ctx, entry, retry_at=ctx.now + ctx.settings.backoff_first)
        elif entry.retry_at is None or ctx.now >= entry.retry_at:
            return ctx.done(CreateSnapshot(name, "upgrade", "savepoint", entry.path, entry.revision))
    return ctx


def snapshot_name(ctx: Context, entry: RequestedSavepoint) -> str:
    """Return the name of the FlinkSnapshot for the entry."""
    return f"{ctx.subject.name}-{entry.kind.lower()}-{ctx.digest(entry.path, length=10)}"


def _with_late_savepoints(ctx: Context) -> Context:
    op, due_folders = ctx.status.operation, set(late_folders(ctx.status, ctx.now))
    again = ctx.settings.backoff_first if op is not None and op.kind == "Delete" else SEARCH_INTERVAL
    for entry in ctx.status.requested_savepoints:
        if entry.directory not in due_folders:
            continue
        answered, found = entry.directory in ctx.seen.late, ctx.seen.late.get(entry.directory)
        if found is not None:
            ctx = _with_changed_entry(ctx, entry, path=found.path, retry_at=None)
            text = f"{found.path} was completed late; it gets a FlinkSnapshot"
            ctx = ctx.with_event("SavepointLate", text, key=f"{entry.directory}/late")
        elif answered and _is_over(ctx, entry):
            ctx = _without_entry(ctx, entry)
        else:
            ctx = _with_changed_entry(ctx, entry, retry_at=ctx.now + again)
    return ctx


def _is_over(ctx: Context, entry: RequestedSavepoint) -> bool:
    """Return whether a savepoint can no longer appear in the folder of the entry."""
    running, op = ctx.status.running, ctx.status.operation
    if op is not None and op.kind == "Delete":
        return op.step == "Dispose"
    stopped = running is None or running.job_id != entry.job_id or running.finished_at is not None
    has_pods = any(pod.job_id == entry.job_id for pod in ctx.seen.left)
    return (stopped and not has_pods) or ctx.now - entry.time > COMPLETION_LIMIT


def _with_recorded_savepoint(ctx: Context, entry: RequestedSavepoint, name: str) -> Context:
    ctx, last = _without_entry(ctx, entry), ctx.status.last_savepoint
    if last is None or last.path != entry.path:
        return ctx
    return ctx.with_status(last_savepoint=last.model_copy(update={"snapshot": name}))


def _without_entry(ctx: Context, entry: RequestedSavepoint) -> Context:
    return ctx.with_status(requested_savepoints=tuple(e for e in ctx.status.requested_savepoints if e != entry))


def _with_changed_entry(ctx: Context, entry: RequestedSavepoint, **changes: object) -> Context:
    changed = entry.model_copy(update=changes)
    entries = tuple(changed if e == entry else e for e in ctx.status.requested_savepoints)
    return ctx.with_status(requested_savepoints=entries)


def pending(ctx: Context) -> str:
    """Return the remaining work for the savepoints of a FlinkJob that is being deleted, or an empty string."""
    for entry in ctx.status.requested_savepoints:
        return (
            f"creating a FlinkSnapshot for {entry.path}"
            if entry.path
            else f"looking for a savepoint in {entry.directory}"
        )
    for snapshot in ctx.seen.snapshots:
        if snapshot.trigger == "upgrade" and snapshot.state == "Pending" and not snapshot.deleting:
            return f"FlinkSnapshot {snapshot.name} is being verified"
    return ""


def has_complete_savepoint(ctx: Context) -> bool:
    """Return whether one of the savepoints is known to be complete, or no entry remains."""
    return any(entry.path for entry in ctx.status.requested_savepoints) or not ctx.status.requested_savepoints


def with_leftovers_event(ctx: Context) -> Context:
    """Return the same context with an event that lists what the deleted FlinkJob leaves in storage."""
    parts = [*_unrecorded(ctx), *_savepoint(ctx), *_checkpoints(ctx)]
    if not parts and not ctx.status.history:
        return ctx
    if not parts:
        return ctx.with_event("Deleted", "no data is left in storage", key=f"{ctx.subject.uid}/Deleted")
    rest = "; ".join(parts)
    text = f"left in storage: {rest}. A FlinkJob of this name continues from it with job.startFrom: latest-of-name"
    return ctx.with_event("Deleted", text, key=f"{ctx.subject.uid}/Deleted")


def _unrecorded(ctx: Context) -> list[str]:
    entries = ctx.status.requested_savepoints
    complete = [f"the savepoint {e.path}, for which no FlinkSnapshot could be created" for e in entries if e.path]
    return complete + [f"possibly a savepoint in {e.directory}" for e in entries if not e.path][:_NAMED]


def _savepoint(ctx: Context) -> list[str]:
    done = [
        s for s in ctx.seen.snapshots if s.kind == "savepoint" and s.path and s.state == "Completed" and not s.deleting
    ]
    known = [(s.completed_at or ctx.subject.created, s.path or "", s.name) for s in done]
    last = ctx.status.last_savepoint
    if last is not None and last.path not in {path for _, path, _ in known}:
        known.append((last.time or ctx.now, last.path, last.snapshot or ""))
    parts = []
    if known:
        _, path, name = max(known)
        parts.append(f"the newest savepoint, {path}" + (f" (FlinkSnapshot {name})" if name else ""))
    if len(done) > 1:
        parts.append(f"{len(done)} savepoints in total, see kubectl get fsnap -l penstock.dev/job={ctx.subject.name}")
    return parts


def _checkpoints(ctx: Context) -> list[str]:
    status = ctx.status
    by_worth = sorted(
        status.superseded, key=lambda former: not former.empty
    )  # name incarnations with checkpoints first
    known = [(former.job_id, former.revision) for former in by_worth]
    if status.running is not None and status.running.job_id not in {job_id for job_id, _ in known}:
        known.append((status.running.job_id, status.running.revision))
    folders = []
    for job_id, revision in reversed(known):
        specs = disposal_specs(ctx, revision)
        folders.append(f"{specs[0].storage.checkpoints}/{job_id}" if specs else job_id)
    more = f" and {len(folders) - _NAMED} more" if len(folders) > _NAMED else ""
    return [f"checkpoints in {', '.join(folders[:_NAMED])}{more}"] if folders else []
