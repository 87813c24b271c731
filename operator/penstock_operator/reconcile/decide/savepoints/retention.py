"""Which savepoints and checkpoints may go, and which a start may still need. Pure; needs no running job."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from penstock_operator.api.flinkjob import Retention
    from penstock_operator.api.status import FlinkJobStatus, Superseded
    from penstock_operator.reconcile.observation import SnapshotObject

AUTOMATIC = frozenset({"periodic", "upgrade", "nonce"})


def protected_paths(status: FlinkJobStatus, initial: str | None = None) -> frozenset[str]:
    """What a restore, now or after a failure of what is being done, may still need."""
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
    """What a FlinkJob may still be started from that was made by another one.

    The path in its spec counts until it was started from it: before its first start, and after a new redeploy nonce.
    """
    never_started = status.running is None and status.next_restore is None
    redeploy = redeploy_nonce is not None and redeploy_nonce != status.nonces.savepoint_redeploy
    return protected_paths(status, initial if never_started or redeploy else None)


def has_own_state(status: FlinkJobStatus) -> bool:
    """Whether the FlinkJob has completed a checkpoint or savepoint, so that the name does not depend on an earlier one's.

    What is not known to be complete does not count.
    """
    savepoint = status.last_savepoint is not None or any(asked.path for asked in status.asked_savepoints)
    return savepoint or status.stable_revision is not None


def disposable(status: FlinkJobStatus) -> tuple[Superseded, ...]:
    """Incarnations whose checkpoints may go with the FlinkJob: not what it was lent and has got no further than."""
    own = has_own_state(status)
    return tuple(former for former in status.superseded if own or not former.borrowed)


def expired(
    snapshots: Iterable[SnapshotObject], retention: Retention, protected: Collection[str], now: datetime
) -> tuple[str, ...]:
    """Names of the FlinkSnapshots to delete, oldest first.

    Only completed savepoints that the operator made by itself count; the newest of them always stays, and so does
    every path in `protected`. What is being written or was asked for by a person is never touched.
    """
    kept = [s for s in snapshots if s.trigger in AUTOMATIC and s.state == "Completed" and not s.deleting]
    mine = sorted((s for s in kept if s.completed_at is not None), key=lambda s: (s.completed_at or now, s.name))
    surplus = {s.name for s in mine[: max(len(mine) - retention.count, 0)]}
    if retention.age is not None:
        surplus |= {s.name for s in mine[:-1] if s.completed_at and now - s.completed_at > retention.age}
    return tuple(s.name for s in mine if s.name in surplus and s.path not in protected)
