"""FlinkSnapshots that are created by nonce, on a schedule or for a stop, and FlinkSnapshots that are deleted. Pure
functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.api.cron import due, upcoming
from penstock_operator.reconcile.decide.actions import CreateSnapshot, DeleteSnapshot
from penstock_operator.reconcile.decide.refusals import SNAPSHOT_REFUSED, explain
from penstock_operator.reconcile.decide.savepoints.retention import (
    expired,
    protected_paths,
    removed_checkpoints,
    retained_checkpoints,
)

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Literal

    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision


def keep_up(ctx: Context) -> Decision | None:
    """Return the most urgent action on FlinkSnapshots, or None."""
    return _refused(ctx) or _by_nonce(ctx) or _by_clock(ctx) or _for_a_stop(ctx) or _accepted(ctx) or _surplus(ctx)


def _refused(ctx: Context) -> Decision | None:
    """Report a FlinkSnapshot that cannot be created, once per reason. The creation is tried again, and other upkeep
    continues.
    """
    failure, error = ctx.failed_action("CreateSnapshot"), ctx.status.error
    if failure is None:
        return None
    text = explain(failure)
    if error is not None and (error.reason, error.message) == (SNAPSHOT_REFUSED, ctx.clip(text)):
        return None
    key = f"{ctx.subject.generation}/{ctx.digest(text)}"
    ctx = ctx.failed(SNAPSHOT_REFUSED, text).with_event(SNAPSHOT_REFUSED, text, warning=True, key=key)
    return ctx.done(after=ctx.settings.backoff_first)


def _accepted(ctx: Context) -> Decision | None:
    """Remove the report when no FlinkSnapshot is left to be created."""
    error = ctx.status.error
    if error is None or error.reason != SNAPSHOT_REFUSED or ctx.failed_action("CreateSnapshot") is not None:
        return None
    due = any(entry.path for entry in ctx.status.requested_savepoints)
    return None if due else ctx.with_status(error=None).done()


def _by_nonce(ctx: Context) -> Decision | None:
    if ctx.spec is None or ctx.status.running is None:
        return None
    job, seen = ctx.spec.job, ctx.status.nonces
    wanted: tuple[tuple[Literal["savepoint", "checkpoint"], int | None, int | None], ...] = (
        ("savepoint", job.savepoint_trigger_nonce, seen.savepoint_trigger),
        ("checkpoint", job.checkpoint_trigger_nonce, seen.checkpoint_trigger),
    )
    count = seen.triggers or 0
    for kind, nonce, done in wanted:
        if nonce is None or nonce == done:
            continue
        first = count == 0 and done is None
        ident = ctx.digest(kind, nonce, length=5) if first else ctx.digest(kind, nonce, count, length=5)
        name = f"{ctx.subject.name}-{kind}-{nonce}-{ident}"
        if any(s.name == name for s in ctx.seen.snapshots):
            nonces = seen.model_copy(update={f"{kind}_trigger": nonce, "triggers": count + 1})
            return ctx.with_status(nonces=nonces).done(after=ctx.settings.progress)
        if ctx.failed_action("CreateSnapshot") is None:
            return ctx.done(CreateSnapshot(name, "nonce", kind))
    return None


def _by_clock(ctx: Context) -> Decision | None:
    spec = ctx.spec
    if spec is None or spec.snapshots.periodic is None or not ctx.seen.engine.running:
        return None
    periodic = spec.snapshots.periodic
    last = ctx.status.last_periodic_at or ctx.subject.created
    moment = due(ctx.now, last, interval=periodic.interval, cron=periodic.cron)
    if moment is None or ctx.failed_action("CreateSnapshot") is not None:
        return None
    name = f"{ctx.subject.name}-periodic-{moment:%Y%m%d%H%M%S}"
    if any(s.name == name for s in ctx.seen.snapshots):
        return ctx.with_status(last_periodic_at=moment).done(after=ctx.settings.progress)
    if _one_is_pending(ctx):
        return None
    return ctx.done(CreateSnapshot(name, "periodic", periodic.type))


def _one_is_pending(ctx: Context) -> bool:
    return any(s.trigger == "periodic" and s.state in ("Pending", "InProgress") for s in ctx.seen.snapshots)


def _for_a_stop(ctx: Context) -> Decision | None:
    savepoint = ctx.status.last_savepoint
    accounted = savepoint is not None and savepoint.path in {entry.path for entry in ctx.status.requested_savepoints}
    if (
        savepoint is None
        or accounted
        or savepoint.snapshot is not None
        or ctx.failed_action("CreateSnapshot") is not None
    ):
        return None
    name = f"{ctx.subject.name}-upgrade-{ctx.digest(savepoint.path, length=10)}"
    if any(s.name == name for s in ctx.seen.snapshots):
        return ctx.with_status(last_savepoint=savepoint.model_copy(update={"snapshot": name})).done(
            after=ctx.settings.progress
        )
    return ctx.done(CreateSnapshot(name, "upgrade", "savepoint", savepoint.path, savepoint.revision))


def _surplus(ctx: Context) -> Decision | None:
    spec = ctx.effective_spec
    if spec is None or ctx.failed_action("DeleteSnapshot") is not None:
        return None
    protected = protected_paths(ctx.status, spec.job.initial_savepoint_path)
    found, engine, running = ctx.seen.snapshots, ctx.seen.engine, ctx.status.running
    known = running is not None and engine.job_id == running.job_id
    latest = engine.checkpoints.latest_id if known else None
    retained = retained_checkpoints(ctx.running_spec or spec)
    removed = removed_checkpoints(found, ctx.status, latest=latest, retained=retained)
    spare = expired(found, spec.snapshots.retention, protected, ctx.now, removed=removed)
    return ctx.done(DeleteSnapshot(spare[0])) if spare else None


def next_due(ctx: Context) -> datetime | None:
    """Return the time of the next scheduled snapshot, so that the loop wakes up for it."""
    periodic = ctx.spec.snapshots.periodic if ctx.spec is not None else None
    if periodic is None:
        return None
    last = ctx.status.last_periodic_at or ctx.subject.created
    return upcoming(ctx.now, last, interval=periodic.interval, cron=periodic.cron)
