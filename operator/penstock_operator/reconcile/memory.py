"""What one loop keeps between passes. Only caches and clocks: a loop that lost all of it decides the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from penstock_operator.reconcile.observation import ActionResult


@dataclass
class Memory:
    """One FlinkJob's."""

    last: ActionResult | None = None
    """How the last action ended; shown to one decision."""
    token: str | None = None
    """The REST token, read once."""
    silent_since: datetime | None = None
    """Since when the master has not answered."""
    dependents_at: datetime | None = None
    """When Services, ConfigMap and so on were last compared."""
    dependents_for: tuple[str, int] = ("", 0)
    """Job id and generation they were compared for."""
    missing: tuple[str, ...] = ()
    """What was found then."""
    written_at: datetime | None = None
    """When the status was last written."""
    told: dict[str, str] = field(default_factory=dict)
    """Events told by this process: key → text."""
