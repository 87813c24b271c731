"""The behavior of jobs by image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Image:
    """A job image. The default one works."""

    pulls: bool = True
    check: dict[str, Any] | None = None
    """The report of `penstock check`, or None if it finds no problem."""
    waits: tuple[str, str] | None = None
    """The reason and message of a container that cannot be created."""
    check_crashes: bool = False
    check_hangs: bool = False
    """Whether `penstock check` never ends."""
    starts: bool = True
    """Whether the master's process starts. If not, it ends immediately and repeatedly."""
    supports_standby: bool = True
    """Whether the engine can wait for its release. If not, it ends."""
    checks_itself: bool = True
    """Whether a master on standby can check its program. If not, the engine is older."""
    checkpoints: bool = True
    """Whether checkpoints complete while the job runs."""
    savepoints: bool = True
    """Whether savepoints succeed."""
    restarts_every: float = 0.0
    """The interval in seconds after which the engine restarts the job repeatedly, or 0 for never."""
    fails_after: float | None = None
    """The time of RUNNING in seconds after which the engine fails the job permanently."""
    failure: str = "ValueError: a record makes the job fail"
    """The exception with which the engine fails the job."""
    ends_at: int | None = None
    """The number of records after which a bounded job is FINISHED."""
    without: str = ""
    """A uid that has state in the restored snapshot and no operator in this image's graph."""
