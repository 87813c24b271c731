"""What a master tells of its job: checkpoints, restarts, and how long actions that it was asked for go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import datetime, timedelta


@dataclass(frozen=True)
class Checkpoints:
    """The engine's own account of its checkpoints."""

    completed: int = 0
    failed: int = 0
    restored: int = 0
    latest_id: int | None = None
    latest_path: str | None = None
    latest_at: datetime | None = None
    failure: str = ""
    """Why the last one that failed did."""


@dataclass(frozen=True)
class Request:
    """The state of a long action that the engine was asked for."""

    id: str
    state: Literal["Unknown", "InProgress", "Completed", "Failed"]
    location: str | None = None
    cause: str = ""


@dataclass(frozen=True)
class Rescaled:
    """A rescale as the engine accounts for it."""

    parallelism: int
    """The one it led to."""
    took: timedelta
    """From when its checkpoint was asked for to RUNNING."""


@dataclass(frozen=True)
class Progress:
    """What the engine keeps a record of."""

    restarts: int = 0
    """Failovers; a rescale is none."""
    rescaled: Rescaled | None = None
    """The last rescale."""
