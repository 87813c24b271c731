"""What storage holds: checkpoints and savepoints, and whether they can be restored from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True)
class StoredSnapshot:
    """A complete checkpoint or savepoint on storage."""

    path: str
    checkpoint_id: int | None = None
    job_id: str | None = None
    time: datetime | None = None
    torn: str = ""
    """Why the newest one cannot be used, if that is so."""
    older: str | None = None
    """An older one that could be used in its place; sinks have committed what came after it."""


@dataclass(frozen=True)
class Verdict:
    """Whether a snapshot can be restored from."""

    path: str
    ok: bool
    reason: str = ""
    checkpoint_id: int | None = None
    time: datetime | None = None


@dataclass(frozen=True)
class Left:
    """What FlinkJobs of one name have in storage."""

    incarnations: tuple[str, ...] = ()
    """Job ids with a folder of checkpoints, whether there are any in it or not."""
    snapshots: tuple[StoredSnapshot, ...] = ()
    """The newest checkpoint of each incarnation, and all savepoints that were ever complete."""
