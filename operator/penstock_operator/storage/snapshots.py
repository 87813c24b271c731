"""Checkpoints and savepoints in storage, and the information about whether they can be restored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True)
class StoredSnapshot:
    """A checkpoint or savepoint in storage."""

    path: str
    checkpoint_id: int | None = None
    job_id: str | None = None
    time: datetime | None = None
    torn: str = ""
    """Reason why the newest snapshot cannot be used. Empty if it can be used."""
    older: str | None = None
    """An older snapshot that can be used in place of the newest snapshot. Sinks have already committed output that
    follows the older snapshot.
    """


@dataclass(frozen=True)
class Verdict:
    """Result of a verification: whether a snapshot can be restored."""

    path: str
    ok: bool
    reason: str = ""
    checkpoint_id: int | None = None
    time: datetime | None = None


@dataclass(frozen=True)
class Beginning:
    """The records of the start of an incarnation, which are in the folder of its checkpoints."""

    folder: str
    """Folder of the incarnation's checkpoints."""
    led: bool = False
    """Whether a master has started to run the job."""
    path: str | None = None
    """The snapshot that the arguments of the first master name. None if the job started with empty state, or if no
    master has started.
    """
    released: str | None = None
    """The snapshot that the record `release` names for a master on standby. An empty text means that the job starts
    with empty state. None means that the record does not exist.
    """
    completed: bool = False
    """Whether a checkpoint was completed, even if its files no longer exist."""
    ended: bool = False
    """Whether the job has ended. Its checkpoints may have been removed at the end."""


@dataclass(frozen=True)
class Left:
    """State that FlinkJobs of one name have left in storage."""

    incarnations: tuple[str, ...] = ()
    """Job ids that have a folder for checkpoints, even if the folder contains no checkpoint."""
    snapshots: tuple[StoredSnapshot, ...] = ()
    """The newest checkpoint of each incarnation, and all savepoints that were ever complete."""
