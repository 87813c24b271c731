"""FlinkSnapshots that are made and deleted while no operation is in progress: by nonce, by the clock, for what a stop has made. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.api.cron import due, upcoming
from penstock_operator.reconcile.decide.actions import CreateSnapshot, DeleteSnapshot
from penstock_operator.reconcile.decide.savepoints.retention import expired, protected_paths

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Literal

    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision


def keep_up(ctx: Context) -> Decision | None:
    """The most urgent thing to do about FlinkSnapshots, or None."""
    return _by_nonce(ctx) or _by_clock(ctx) or _for_a_stop(ctx) or _surplus(ctx)


def _by_nonce(ctx: Context) -> Decision | None:
    if ctx.spec is None or ctx.status.running is None:
        return None
    job, seen = ctx.spec.job, ctx.status.nonces
    wanted: tuple[tuple[Literal["savepoint", "checkpoint"], int | None, int | None], ...] = (
        ("savepoint", job.savepoint_trigger_nonce, seen.savepoint_trigger),
        ("checkpoint", job.checkpoint_trigger_nonce, seen.checkpoint_trigger),
    )
    for kind, nonce, done in wanted:
        if nonce is None or nonce == done:
            continue
        name = f"{ctx.subject.name}-{kind}-{nonce}-{ctx.digest(kind, nonce, length=5)}"
        if any(s.name == name for s in ctx.seen.snapshots):
            nonces = seen.model_copy(update={f"{kind}_trigger": nonce})
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
    made = ctx.status.last_savepoint
    accounted = made is not None and made.path in {entry.path for entry in ctx.status.asked_savepoints}
    if made is None or accounted or made.snapshot is not None or ctx.failed_action("CreateSnapshot") is not None:
        return None
    name = f"{ctx.subject.name}-upgrade-{ctx.digest(made.path, length=10)}"
    if any(s.name == name for s in ctx.seen.snapshots):
        return ctx.with_status(last_savepoint=made.model_copy(update={"snapshot": name})).done(
            after=ctx.settings.progress
        )
    return ctx.done(CreateSnapshot(name, "upgrade", "savepoint", made.path, made.revision))


def _surplus(ctx: Context) -> Decision | None:
    spec = ctx.effective_spec
    if spec is None or ctx.failed_action("DeleteSnapshot") is not None:
        return None
    protected = protected_paths(ctx.status, spec.job.initial_savepoint_path)
    spare = expired(ctx.seen.snapshots, spec.snapshots.retention, protected, ctx.now)
    return ctx.done(DeleteSnapshot(spare[0])) if spare else None


def next_due(ctx: Context) -> datetime | None:
    """When the clock wants the next snapshot; so that the loop wakes up for it."""
    periodic = ctx.spec.snapshots.periodic if ctx.spec is not None else None
    if periodic is None:
        return None
    last = ctx.status.last_periodic_at or ctx.subject.created
    return upcoming(ctx.now, last, interval=periodic.interval, cron=periodic.cron)
