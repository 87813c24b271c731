"""What one loop keeps between passes. Only caches and clocks: a loop that lost all of it decides the same."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock_operator.reconcile.observation import Repair

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from penstock_operator.api.status import Ownership
    from penstock_operator.reconcile.observation import ActionResult, Observation, Repaired


@dataclass
class Cache:
    """One FlinkJob's."""

    last: ActionResult | None = None
    """How the last action ended; shown to one decision."""
    rests: bool = False
    """The last look found nothing to do."""
    wrote: str = ""
    """The resourceVersion of the FlinkJob after our last write of its status."""
    owner: Ownership | None = None
    """Which operator the status named last."""
    owner_since: datetime | None = None
    """Since when this process sees it so."""
    owned: bool = False
    """It was ours, in this process."""
    acted_at: datetime | None = None
    """When something was last changed."""
    token: str | None = None
    """The REST token, read once."""
    silent_since: datetime | None = None
    """Since when the master has not answered."""
    dependents_at: datetime | None = None
    """When Services, ConfigMap and so on were last compared."""
    dependents_for: tuple[str, int] = ("", 0)
    """Job id and generation they were compared for."""
    applied_for: int | None = None
    """The generation that they were as it asks for."""
    missing: tuple[str, ...] = ()
    """What was found then."""
    unread_since: datetime | None = None
    """Since when the API server has failed over some read about the job, though it answers for the job itself."""
    written_at: datetime | None = None
    """When the status was last written."""
    repairs: dict[Repaired, Repair] = field(default_factory=dict)
    """What was applied again, until it is found to have helped."""

    def aside(self) -> Cache:
        """A copy for a look at what may be old: of what that finds only the master's answers are kept."""
        return replace(self, repairs=dict(self.repairs))

    def repaired(self, things: Iterable[Repaired], seen: Observation, now: datetime) -> None:
        """These have just been applied again."""
        for thing in things:
            before, flaw = self.repairs.get(thing), seen.flaws.get(thing, "")
            attempts = before.attempts + 1 if before is not None and before.flaw == flaw else 1
            self.repairs[thing] = Repair(flaw, attempts, now)

    def still_due(self, seen: Observation) -> dict[Repaired, Repair]:
        """What an apply did not mend; whatever is as it should be is forgotten."""
        self.repairs = {thing: repair for thing, repair in self.repairs.items() if thing in seen.flaws}
        return {thing: repair for thing, repair in self.repairs.items() if seen.flaws[thing] == repair.flaw}
