"""Records that a master reports about its job: checkpoints, restarts, and the state of requested actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import datetime, timedelta


@dataclass(frozen=True)
class Checkpoints:
    """The engine's counters of checkpoints, and the newest checkpoint."""

    completed: int = 0
    failed: int = 0
    restored: int = 0
    latest_id: int | None = None
    latest_path: str | None = None
    latest_at: datetime | None = None
    failure: str = ""
    """Reason why the last failed checkpoint failed."""


@dataclass(frozen=True)
class Request:
    """The state of a long action that the engine was requested to execute."""

    id: str
    state: Literal["Unknown", "InProgress", "Completed", "Failed"]
    location: str | None = None
    cause: str = ""


@dataclass(frozen=True)
class Rescaled:
    """A completed rescale, as the engine reports it."""

    parallelism: int
    """Parallelism after the rescale."""
    took: timedelta
    """Time from the request of the checkpoint for the rescale until the job was RUNNING."""


@dataclass(frozen=True)
class Progress:
    """The engine's record of restarts and rescales."""

    restarts: int = 0
    """Number of failovers. A rescale is not a failover."""
    rescaled: Rescaled | None = None
    """The last rescale."""
