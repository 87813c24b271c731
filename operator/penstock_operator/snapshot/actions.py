"""What can be done for a FlinkSnapshot, and what a decision about it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import timedelta

    from penstock_operator.api.flinksnapshot import FlinkSnapshotStatus
    from penstock_operator.reconcile.decide.decision import Event


@dataclass(frozen=True)
class Protect:
    """Set finalizer and labels."""


@dataclass(frozen=True)
class TakeSnapshot:
    """Ask the engine."""

    kind: Literal["savepoint", "checkpoint"]
    job_id: str
    directory: str
    trigger_id: str


@dataclass(frozen=True)
class Dispose:
    """Delete the files."""

    path: str


@dataclass(frozen=True)
class Release:
    """Let the object go."""


SnapshotAction = Protect | TakeSnapshot | Dispose | Release


@dataclass(frozen=True)
class SnapshotDecision:
    """Write the status, tell, act, come back; `requeue` None: at once."""

    status: FlinkSnapshotStatus
    action: SnapshotAction | None = None
    events: tuple[Event, ...] = ()
    requeue: timedelta | None = None
