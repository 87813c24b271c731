"""The result of a decision: the status to write first, then at most one action, and the events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import timedelta

    from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
    from penstock_operator.reconcile.decide.actions import Action


@dataclass(frozen=True)
class Event:
    """One line for `kubectl describe`: what happened and what follows, or the action that a user should take."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"
    key: str = ""
    """Identity of the event. Events with the same identity are emitted only once."""


@dataclass(frozen=True)
class Decision:
    """A decision: the new status, the events to emit, the action, and the time until the next step."""

    status: FlinkJobStatus
    action: Action | None = None
    events: tuple[Event, ...] = ()
    requeue: timedelta | None = None
    """None means that the next step follows immediately, after the action and the write of the status."""
