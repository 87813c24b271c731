"""How jobs of an image behave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Image:
    """A job image. The default one works."""

    pulls: bool = True
    check: dict[str, Any] | None = None
    """The report of `penstock check`; None: all is well."""
    waits: tuple[str, str] | None = None
    """Reason and message of a container that cannot be created."""
    check_crashes: bool = False
    check_hangs: bool = False
    """True: `penstock check` does not end."""
    starts: bool = True
    """False: the master's process ends at once, again and again."""
    stands_by: bool = True
    """False: its engine does not know how to wait until it is released, and ends."""
    checkpoints: bool = True
    """False: it runs, but no checkpoint completes."""
    savepoints: bool = True
    """False: savepoints fail."""
    restarts_every: float = 0.0
    """Seconds after which the engine restarts it, again and again; 0: never."""
    fails_after: float | None = None
    """Seconds of RUNNING after which the engine gives the job up."""
    ends_at: int | None = None
    """Records after which a bounded job is FINISHED."""
    without: str = ""
    """uid that has state in what it is restored from, and no operator in this image's graph."""
