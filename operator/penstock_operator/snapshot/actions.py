"""The actions on a FlinkSnapshot, and the content of a decision about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import timedelta

    from penstock_operator.api.flinksnapshot import FlinkSnapshotStatus
    from penstock_operator.reconcile.decide.decision import Event


@dataclass(frozen=True)
class Protect:
    """Action: set the finalizer and the labels."""


@dataclass(frozen=True)
class TakeSnapshot:
    """Action: request the snapshot from the engine."""

    kind: Literal["savepoint", "checkpoint"]
    job_id: str
    directory: str
    trigger_id: str


@dataclass(frozen=True)
class Dispose:
    """Action: delete the files."""

    path: str


@dataclass(frozen=True)
class Release:
    """Action: remove the finalizer, so that Kubernetes can delete the object."""


SnapshotAction = Protect | TakeSnapshot | Dispose | Release


@dataclass(frozen=True)
class SnapshotDecision:
    """A decision: the new status, the events to emit, the action, and the time of the next pass. If `requeue` is None,
    the next pass follows immediately.
    """

    status: FlinkSnapshotStatus
    action: SnapshotAction | None = None
    events: tuple[Event, ...] = ()
    requeue: timedelta | None = None
