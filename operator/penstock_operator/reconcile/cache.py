"""The data that one loop keeps between passes. The data only saves reads and measures times. A loop that has lost the
data makes the same decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock_operator.api.validation import parse_spec
from penstock_operator.reconcile.observation import Repair

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable
    from datetime import datetime

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status.flinkjob_status import Ownership
    from penstock_operator.engine.client import MasterTls
    from penstock_operator.kube.cluster import Manifest
    from penstock_operator.reconcile.observation import ActionResult, Observation, Repaired
    from penstock_operator.resources.incarnation import Incarnation
    from penstock_operator.resources.names import Owner

_SPECS = 4
"""Maximum number of parsed specs. A FlinkJob has one parsed spec for each set of defaults."""


@dataclass(frozen=True)
class Newest:
    """The newest checkpoint of an incarnation, and the time when this process first saw it, in seconds of the
    monotonic clock.
    """

    job_id: str
    checkpoint: int | None
    since: float


class ParsedSpecs:
    """Cache of the last parsed specs. Most passes over a FlinkJob find an unchanged spec."""

    def __init__(self) -> None:
        self._known: dict[str, FlinkJobSpec] = {}
        """Specs by the `repr` of their source, which differs for values that compare as equal, such as 1 and True.

        JSON cannot serve as the key: presets come from YAML, which also has dates and keys that are numbers.
        """

    def __call__(self, raw: object) -> FlinkJobSpec:
        """Return the parsed spec. See `parse_spec`."""
        text = repr(raw)
        spec = self._known.pop(text, None) or parse_spec(raw)
        self._known[text] = spec
        if len(self._known) > _SPECS:
            del self._known[next(iter(self._known))]
        return spec


@dataclass(frozen=True)
class WantedDeployments:
    """The Deployments of the running incarnation as the operator would apply them, and the input from which they were
    created.
    """

    made_from: tuple[Owner, Incarnation, int]
    master: Manifest
    worker: Manifest


@dataclass(frozen=True)
class Submission:
    """The start of a program in a FlinkCluster. It may take minutes, so it continues while the passes go on."""

    job_id: str
    task: asyncio.Task[None]

    @property
    def is_in_progress(self) -> bool:
        """Whether the session has not responded yet."""
        return not self.task.done()

    @property
    def failure(self) -> BaseException | None:
        """The error with which the start has ended."""
        return self.task.exception() if self.task.done() and not self.task.cancelled() else None


@dataclass
class Cache:
    """The cache of one FlinkJob."""

    last: ActionResult | None = None
    """Result of the last action. Only the next decision uses it."""
    is_at_rest: bool = False
    """Whether the last pass found nothing to do."""
    written_version: str = ""
    """The resourceVersion of the FlinkJob after the last write of its status by this process."""
    specs: ParsedSpecs = field(default_factory=ParsedSpecs)
    """The specs that were parsed last."""
    wanted: WantedDeployments | None = None
    """The Deployments that the last observation compared with the live Deployments."""
    owner: Ownership | None = None
    """The operator that the status named in the last pass."""
    owner_since: datetime | None = None
    """Time when this process first saw this operator in the status."""
    owned: bool = False
    """Whether this process has managed the job."""
    has_read_status: bool = False
    """Whether this process has read the status before. Its deadlines then use the clock of this process."""
    deleting_since: datetime | None = None
    """Time when this process first saw the deletion. The `deletionTimestamp` uses the clock of the API server."""
    acted_at: datetime | None = None
    """Time of the last action."""
    token: str | None = None
    """The REST token, which is read once."""
    token_of: str = ""
    """Name of the Secret with the token."""
    submission: Submission | None = None
    """The last start of a program in a FlinkCluster."""
    record: Manifest | None = None
    """The record of that start in Kubernetes."""
    tls: MasterTls | None = None
    """The CA of the master's certificate."""
    tls_of: str = ""
    """Name of the Secret with the CA. Empty means that the CA must be read again."""
    cluster: tuple[str, str] | None = None
    """Namespace and name of the FlinkCluster that the FlinkJob names."""
    silent_since: datetime | None = None
    """Time when the master stopped responding."""
    newest: Newest | None = None
    """The newest observed checkpoint."""
    dependents_at: datetime | None = None
    """Time of the last comparison of Services, ConfigMap and other objects."""
    dependents_key: tuple[str, int] = ("", 0)
    """Job id and generation of the last comparison."""
    applied_for: int | None = None
    """The last generation for which the compared objects were correct."""
    missing: tuple[str, ...] = ()
    """Result of the last comparison: the objects that are missing, changed or superfluous."""
    unread_since: datetime | None = None
    """Time when some reads about the job started to fail, although the API server returns the FlinkJob itself."""
    written_at: datetime | None = None
    """Time of the last write of the status."""
    repairs: dict[Repaired, Repair] = field(default_factory=dict)
    """Objects that were applied again, until a comparison shows that they are correct."""

    def for_stale_data(self) -> Cache:
        """Return a copy for a pass over possibly stale data. After the pass, the loop only keeps the master's responses."""
        return replace(self, repairs=dict(self.repairs))

    def record_repairs(self, things: Iterable[Repaired], seen: Observation, now: datetime) -> None:
        """Record objects that were just applied again."""
        for thing in things:
            before, flaw = self.repairs.get(thing), seen.flaws.get(thing, "")
            attempts = before.attempts + 1 if before is not None and before.flaw == flaw else 1
            self.repairs[thing] = Repair(flaw, attempts, now)

    def ineffective_repairs(self, seen: Observation) -> dict[Repaired, Repair]:
        """Return the repairs that had no effect. Forget objects that are correct now."""
        self.repairs = {thing: repair for thing, repair in self.repairs.items() if thing in seen.flaws}
        return {thing: repair for thing, repair in self.repairs.items() if seen.flaws[thing] == repair.flaw}
