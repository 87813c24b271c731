"""What is decided: the status to write first, then at most one action, and what to tell people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import timedelta

    from penstock_operator.api.status import FlinkJobStatus
    from penstock_operator.reconcile.decide.actions import Action


@dataclass(frozen=True)
class Event:
    """One line for `kubectl describe`: what happened and what comes next, or what a person should do."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"
    key: str = ""
    """Makes it one event, however often it is told."""


@dataclass(frozen=True)
class Decision:
    """Write `status` (if it differs), tell `events`, do `action`, and come back after `requeue`."""

    status: FlinkJobStatus
    action: Action | None = None
    events: tuple[Event, ...] = ()
    requeue: timedelta | None = None
    """None: as soon as the action is done, or when something happens."""
