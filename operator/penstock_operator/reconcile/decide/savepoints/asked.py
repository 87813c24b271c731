"""No savepoint that the operator has asked for without a FlinkSnapshot that stands for it. Pure.

A job is stopped with a savepoint to upgrade, suspend or delete it. What comes of that is not known when it is asked for: the
attempt may time out and the savepoint become complete all the same, while another attempt is under way, the job runs on, or
its pods go; the operation may be rolled back, or wait for a person. So each is written down with its folder when it is asked for
(`status.askedSavepoints`), and stays there until one of these is so:

    the folder holds        the incarnation             next
    ──────────────────────  ──────────────────────────  ──────────────────────────────────────────────────────────────
    a complete savepoint    any                         a FlinkSnapshot is made, then it is struck off
    none                    is over, its pods are gone  struck off: none can come any more
    none                    runs on                     looked at again every minute, for an hour
    (storage is silent)     any                         looked at again

A FlinkSnapshot that cannot be made holds nothing up; it is tried again. Deletion waits a moment for it, since
nobody else would make it, and says in an event what it leaves behind.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.api.status import AskedSavepoint
from penstock_operator.reconcile.decide.actions import CreateSnapshot
from penstock_operator.reconcile.decide.storage_settings import disposal_specs

if TYPE_CHECKING:
    from datetime import datetime

    from penstock_operator.api.status import FlinkJobStatus, Running
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision

KEPT = 20
LOOK_AGAIN = timedelta(minutes=1)
LATEST = timedelta(hours=1)
"""So long after it was asked for one may still become complete; the engine gives up much earlier."""
_NAMED = 3


def asked(ctx: Context, directory: str, running: Running) -> Context:
    """The same context with a savepoint written down before the engine is asked for it."""
    entry = AskedSavepoint(
        directory=directory, kind=ctx.op.kind, job_id=running.job_id, revision=running.revision, time=ctx.now
    )
    return ctx.with_status(asked_savepoints=(*ctx.status.asked_savepoints, entry)[-KEPT:])


def completed(ctx: Context, path: str) -> Context:
    """The same context with the folder's savepoint known to be complete."""
    entries = (
        entry.model_copy(update={"path": path, "retry_at": None}) if path.startswith(f"{entry.directory}/") else entry
        for entry in ctx.status.asked_savepoints
    )
    return ctx.with_status(asked_savepoints=tuple(entries))


def late_folders(status: FlinkJobStatus, now: datetime) -> tuple[str, ...]:
    """Folders to look into, besides the one whose savepoint is waited for; a deletion looks once, when the pods have gone."""
    op = status.operation
    if op is not None and op.kind == "Delete" and op.step != "Dispose":
        return ()
    awaited = op.target_directory if op is not None and op.step in ("Stop", "Seal") and op.trigger_id else None
    sealing = op.target_directory if op is not None and op.step == "Seal" else None
    last_look = op is not None and op.step == "Dispose"
    return tuple(
        entry.directory
        for entry in status.asked_savepoints
        if entry.path is None
        and entry.directory not in (awaited, sealing)
        and (last_look or entry.retry_at is None or now >= entry.retry_at)
    )


def account(ctx: Context) -> Context | Decision:
    """Take note of what has come late, and make the FlinkSnapshot that is due; the context to go on with, otherwise."""
    if not ctx.status.asked_savepoints:
        return ctx
    ctx = _noted(ctx)
    for entry in ctx.status.asked_savepoints:
        if entry.path is None:
            continue
        name = snapshot_name(ctx, entry)
        if any(s.name == name for s in ctx.seen.snapshots):
            ctx = _recorded(ctx, entry, name)
        elif ctx.failed_action("CreateSnapshot") is not None:
            ctx = _changed(ctx, entry, retry_at=ctx.now + ctx.settings.backoff_first)
        elif entry.retry_at is None or ctx.now >= entry.retry_at:
            return ctx.done(CreateSnapshot(name, "upgrade", "savepoint", entry.path, entry.revision))
    return ctx


def snapshot_name(ctx: Context, entry: AskedSavepoint) -> str:
    """Of the FlinkSnapshot that stands for it."""
    return f"{ctx.subject.name}-{entry.kind.lower()}-{ctx.digest(entry.path, length=10)}"


def _noted(ctx: Context) -> Context:
    op, looked_for = ctx.status.operation, set(late_folders(ctx.status, ctx.now))
    again = ctx.settings.backoff_first if op is not None and op.kind == "Delete" else LOOK_AGAIN
    for entry in ctx.status.asked_savepoints:
        if entry.directory not in looked_for:
            continue
        answered, found = entry.directory in ctx.seen.late, ctx.seen.late.get(entry.directory)
        if found is not None:
            ctx = _changed(ctx, entry, path=found.path, retry_at=None)
            text = f"{found.path} is complete after all; a FlinkSnapshot stands for it"
            ctx = ctx.tell("SavepointLate", text, key=f"{entry.directory}/late")
        elif answered and _is_over(ctx, entry):
            ctx = _struck(ctx, entry)
        else:
            ctx = _changed(ctx, entry, retry_at=ctx.now + again)
    return ctx


def _is_over(ctx: Context, entry: AskedSavepoint) -> bool:
    """None can come any more."""
    running, op = ctx.status.running, ctx.status.operation
    if op is not None and op.kind == "Delete":
        return op.step == "Dispose"
    stopped = running is None or running.job_id != entry.job_id or running.finished_at is not None
    left = any(pod.job_id == entry.job_id for pod in ctx.seen.left)
    return (stopped and not left) or ctx.now - entry.time > LATEST


def _recorded(ctx: Context, entry: AskedSavepoint, name: str) -> Context:
    ctx, last = _struck(ctx, entry), ctx.status.last_savepoint
    if last is None or last.path != entry.path:
        return ctx
    return ctx.with_status(last_savepoint=last.model_copy(update={"snapshot": name}))


def _struck(ctx: Context, entry: AskedSavepoint) -> Context:
    return ctx.with_status(asked_savepoints=tuple(e for e in ctx.status.asked_savepoints if e != entry))


def _changed(ctx: Context, entry: AskedSavepoint, **changes: object) -> Context:
    changed = entry.model_copy(update=changes)
    entries = tuple(changed if e == entry else e for e in ctx.status.asked_savepoints)
    return ctx.with_status(asked_savepoints=entries)


def pending(ctx: Context) -> str:
    """What is still to be done for the savepoints of a FlinkJob that is about to go; empty if it may go."""
    for entry in ctx.status.asked_savepoints:
        return (
            f"making a FlinkSnapshot for {entry.path}"
            if entry.path
            else f"looking for a savepoint in {entry.directory}"
        )
    for snapshot in ctx.seen.snapshots:
        if snapshot.trigger == "upgrade" and snapshot.state == "Pending" and not snapshot.deleting:
            return f"FlinkSnapshot {snapshot.name} is being verified"
    return ""


def is_made(ctx: Context) -> bool:
    """One of them is known to be complete."""
    return any(entry.path for entry in ctx.status.asked_savepoints) or not ctx.status.asked_savepoints


def told_of_the_rest(ctx: Context) -> Context:
    """The same context with an event that says what a FlinkJob that goes leaves in storage."""
    parts = [*_unrecorded(ctx), *_savepoint(ctx), *_checkpoints(ctx)]
    if not parts and not ctx.status.history:
        return ctx
    if not parts:
        return ctx.tell("Deleted", "nothing of it is left in storage", key=f"{ctx.subject.uid}/Deleted")
    rest = "; ".join(parts)
    text = (
        f"what is left in storage: {rest}. A FlinkJob of this name goes on from it with job.startFrom: latest-of-name"
    )
    return ctx.tell("Deleted", text, key=f"{ctx.subject.uid}/Deleted")


def _unrecorded(ctx: Context) -> list[str]:
    entries = ctx.status.asked_savepoints
    made = [f"the savepoint {e.path}, for which no FlinkSnapshot could be made" for e in entries if e.path]
    return made + [f"possibly a savepoint in {e.directory}" for e in entries if not e.path][:_NAMED]


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
        parts.append(f"the savepoint made last, {path}" + (f" (FlinkSnapshot {name})" if name else ""))
    if len(done) > 1:
        parts.append(f"{len(done)} savepoints in all, see kubectl get fsnap -l penstock.dev/job={ctx.subject.name}")
    return parts


def _checkpoints(ctx: Context) -> list[str]:
    status = ctx.status
    known = [(former.job_id, former.revision) for former in status.superseded]
    if status.running is not None and status.running.job_id not in {job_id for job_id, _ in known}:
        known.append((status.running.job_id, status.running.revision))
    folders = []
    for job_id, revision in reversed(known):
        specs = disposal_specs(ctx, revision)
        folders.append(f"{specs[0].storage.checkpoints}/{job_id}" if specs else job_id)
    more = f" and {len(folders) - _NAMED} more" if len(folders) > _NAMED else ""
    return [f"checkpoints in {', '.join(folders[:_NAMED])}{more}"] if folders else []
