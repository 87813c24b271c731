"""Checkpoints, savepoints and sources of state in the status of a FlinkJob."""

from __future__ import annotations

from penstock_operator.api.types import Api, Time


class Checkpoint(Api):
    """A completed checkpoint or savepoint."""

    path: str
    """Location of the checkpoint or savepoint."""
    id: int | None = None
    """Number of the checkpoint."""
    job_id: str | None = None
    """Job id of the incarnation that made it."""
    revision: str | None = None
    """Revision that made it."""
    time: Time | None = None
    """Time of completion."""
    snapshot: str | None = None
    """Name of its FlinkSnapshot."""


class Restore(Api):
    """The source of an incarnation's state."""

    kind: str
    """`Fresh`: empty state. `Savepoint` or `Checkpoint`: the snapshot at `path`. `Latest`: the newest complete checkpoint of the same job id."""
    path: str | None = None
    """Location of the savepoint or checkpoint."""
    checkpoint_id: int | None = None
    """Number of the checkpoint."""
    time: Time | None = None
    """Time when the snapshot was taken."""
    reason: str = ""
    """Reason for this choice."""
    passed_over: Checkpoint | None = None
    """The newest savepoint or checkpoint of earlier FlinkJobs of this name, if the first start did not use it."""


def named_restore(path: str, reason: str) -> Restore:
    """Return the restore point at a path. An empty path stands for empty state.

    >>> named_restore("s3://b/savepoint-1", "").kind, named_restore("", "").kind
    ('Savepoint', 'Fresh')
    """
    if not path:
        return Restore(kind="Fresh", reason=reason)
    checkpoint = path.rstrip("/").rpartition("/")[2].startswith("chk-")
    return Restore(kind="Checkpoint" if checkpoint else "Savepoint", path=path, reason=reason)


class RequestedSavepoint(Api):
    """A savepoint that the operator requested. The record is removed when a FlinkSnapshot exists for it, or when it
    can no longer complete.
    """

    directory: str
    """Target folder of the savepoint."""
    kind: str
    """Operation that requested the savepoint: Upgrade, Suspend or Delete."""
    job_id: str
    """Job id of the incarnation that received the request."""
    revision: str | None = None
    """Revision of that incarnation. Its settings give access to the storage of the savepoint."""
    time: Time
    """Time of the request."""
    path: str | None = None
    """Location of the savepoint, set when it is complete."""
    retry_at: Time | None = None
    """Time of the next attempt to find or record the savepoint."""


class Superseded(Api):
    """A former incarnation. The operator deletes its checkpoints when the running incarnation is stable."""

    job_id: str
    """Job id of the former incarnation."""
    revision: str | None = None
    """Revision of the former incarnation. Its settings give access to the storage of its checkpoints."""
    failures: int = 0
    """Number of failed attempts to delete the checkpoints."""
    retry_at: Time | None = None
    """Time of the next attempt."""
    empty: bool = False
    """Whether the operator has seen no checkpoint of this incarnation. If the list is full, the operator first drops such incarnations."""
    borrowed: bool = False
    """Whether this incarnation belonged to an earlier FlinkJob of this name, from whose state this FlinkJob was started."""
