"""The savepoints and checkpoints that may be deleted, and the snapshots that a start may still need. Pure functions.
They also work while the job does not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.resources.configuration import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from penstock_operator.api.flinkjob import FlinkJobSpec, Retention
    from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
    from penstock_operator.api.status.snapshots import Superseded
    from penstock_operator.reconcile.observation import SnapshotObject

AUTOMATIC = frozenset({"periodic", "upgrade", "nonce"})
FAILED = frozenset({"Failed", "Abandoned"})


def protected_paths(status: FlinkJobStatus, initial: str | None = None) -> frozenset[str]:
    """Return the paths that a restore may still need, now or after a failure of the operation in progress."""
    paths = {initial}
    if status.next_restore is not None:
        paths.add(status.next_restore.path)
    running = status.running
    if running is not None and not (running.stable and running.had_checkpoint):
        paths.add(running.restored_from.path)
    op = status.operation
    if op is not None:
        paths.update(r.path for r in (op.restore, op.fallback_restore) if r is not None)
        paths.add(status.last_savepoint.path if status.last_savepoint else None)
    return frozenset(p for p in paths if p)


def awaited_paths(status: FlinkJobStatus, initial: str | None, redeploy_nonce: int | None) -> frozenset[str]:
    """Return the paths of another FlinkJob's snapshots from which this FlinkJob may still be started.

    The path in the spec of this FlinkJob only counts before the first start, and after a new redeploy nonce.
    """
    never_started = status.running is None and status.next_restore is None
    redeploy = redeploy_nonce is not None and redeploy_nonce != status.nonces.savepoint_redeploy
    return protected_paths(status, initial if never_started or redeploy else None)


def has_own_state(status: FlinkJobStatus) -> bool:
    """Return whether the FlinkJob has completed a checkpoint or savepoint, so that it does not depend on the state of
    an earlier FlinkJob.

    A snapshot that is not known to be complete does not count.
    """
    savepoint = status.last_savepoint is not None or any(entry.path for entry in status.requested_savepoints)
    return savepoint or status.stable_revision is not None


def disposable(status: FlinkJobStatus) -> tuple[Superseded, ...]:
    """Return the incarnations whose checkpoints may be deleted with the FlinkJob.

    Skip an incarnation of an earlier FlinkJob, unless this FlinkJob has completed a checkpoint or savepoint.
    """
    has_own = has_own_state(status)
    return tuple(former for former in status.superseded if has_own or not former.borrowed)


def expired(
    snapshots: Iterable[SnapshotObject],
    retention: Retention,
    protected: Collection[str],
    now: datetime,
    *,
    removed: Collection[str] = (),
) -> tuple[str, ...]:
    """Return the names of the FlinkSnapshots to delete, oldest first.

    Savepoints, checkpoints and failed snapshots each have a separate limit, so that one kind never displaces another. Only
    FlinkSnapshots that the operator created count. The newest savepoint, the newest checkpoint and every path in
    `protected` are kept. A FlinkSnapshot that is in progress, or that a user created, is never deleted.

    Args:
        removed: paths of checkpoints that the engine has removed.
    """
    mine = [s for s in snapshots if s.trigger in AUTOMATIC and not s.deleting]
    complete = sorted((s for s in mine if s.state == "Completed" and s.completed_at), key=_completion)
    savepoints = [s for s in complete if s.kind == "savepoint"]
    checkpoints = [s for s in complete if s.kind == "checkpoint"]
    failed = sorted((s for s in mine if s.state in FAILED), key=lambda s: (s.created or now, s.name))
    surplus = [*_oldest(savepoints, retention.count), *_oldest(checkpoints, retention.checkpoints)]
    surplus += [s for s in checkpoints[:-1] if s.path in removed]
    if retention.age is not None:
        surplus += [s for s in savepoints[:-1] if s.completed_at and now - s.completed_at > retention.age]
    names = {s.name for s in surplus if s.path not in protected}
    return (*(s.name for s in complete if s.name in names), *(s.name for s in _oldest(failed, retention.failed)))


def removed_checkpoints(
    snapshots: Iterable[SnapshotObject], status: FlinkJobStatus, *, latest: int | None = None, retained: int = 1
) -> frozenset[str]:
    """Return the paths of checkpoints that the engine has removed, or that were deleted with the folder of their
    incarnation.

    Args:
        latest: number of the newest checkpoint of the running incarnation, if its master responds.
        retained: number of complete checkpoints that the engine keeps.
    """
    running = status.running.job_id if status.running is not None else None
    known = {former.job_id for former in status.superseded} | {running}

    def is_removed(snapshot: SnapshotObject) -> bool:
        if snapshot.made_by is None or snapshot.kind != "checkpoint":
            return False
        behind = (
            latest is not None and snapshot.checkpoint_id is not None and snapshot.checkpoint_id <= latest - retained
        )
        return snapshot.made_by not in known or (snapshot.made_by == running and behind)

    return frozenset(s.path for s in snapshots if s.path and is_removed(s))


def retained_checkpoints(spec: FlinkJobSpec) -> int:
    """Return how many complete checkpoints the engine keeps."""
    configured = {**DEFAULTS, **spec.configuration}
    names = ("execution.checkpointing.num-retained", "state.checkpoints.num-retained")
    found = next((str(configured[name]) for name in names if name in configured), "1")
    return max(int(found), 1) if found.isdigit() else 1


def _oldest(ordered: list[SnapshotObject], kept: int) -> list[SnapshotObject]:
    return ordered[: max(len(ordered) - kept, 0)]


def _completion(snapshot: SnapshotObject) -> tuple[datetime, str]:
    if snapshot.completed_at is None:
        msg = "a snapshot without a completion time cannot be sorted by it"
        raise AssertionError(msg)
    return snapshot.completed_at, snapshot.name
