"""The input of a decision about a FlinkCluster, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock_operator.api.flinkcluster import FlinkClusterSpec, FlinkClusterStatus
from penstock_operator.reconcile.decide.decision import Event
from penstock_operator.settings import Settings

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from penstock_operator.api.flinkcluster import DeletionOfJobs
    from penstock_operator.engine.client import SessionOverview
    from penstock_operator.errors import Problem


@dataclass(frozen=True)
class RevisionSeen:
    """A revision that exists in Kubernetes."""

    number: int
    digest: str
    flaw: str = ""
    """The first object that is missing or was changed by another client."""
    master_ready: bool = False
    workers_wanted: int = 0
    workers_ready: int = 0
    trouble: str = ""
    """A problem with its pods that Kubernetes reports, with the remedy."""

    @property
    def is_ready(self) -> bool:
        """Whether jobs can start in this revision."""
        return not self.flaw and self.master_ready and self.workers_ready >= self.workers_wanted > 0


@dataclass(frozen=True)
class JobSeen:
    """A FlinkJob that uses the cluster, as its status reports."""

    name: str
    """Namespace and name."""
    generation: int
    revision: int | None
    """The revision in which it runs. None means that it does not run yet."""
    is_settled: bool = True
    """Whether no operation is in progress."""
    slots: int = 0
    """Number of slots that it needs now, or waits for."""
    message: str = ""
    blocked: bool = False
    """Whether its operation needs a user's action."""
    rejected_at: datetime | None = None
    rejection: str = ""


@dataclass(frozen=True)
class SessionUse:
    """The use of the workers of the current revision."""

    busy: frozenset[str] = frozenset()
    """Ids and addresses of the workers that run a part of a job."""
    others: int = 0
    """Number of slots of jobs that no FlinkJob has started."""


@dataclass(frozen=True)
class WorkerPod:
    """A worker pod of the current revision."""

    name: str
    ip: str | None
    ready: bool


@dataclass(frozen=True)
class ClusterContext:
    """The complete input of a decision."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: FlinkClusterSpec | None
    status: FlinkClusterStatus
    now: datetime
    digest: str = ""
    """Hash of the fields of the spec from which pods are created."""
    problems: tuple[Problem, ...] = ()
    is_deleting: bool = False
    deletes: DeletionOfJobs = "Wait"
    """`deletion.jobs`, even if another part of the spec is not valid."""
    has_finalizer: bool = False
    revisions: tuple[RevisionSeen, ...] = ()
    jobs: tuple[JobSeen, ...] = ()
    pods: int = 0
    """Number of pods that exist."""
    empty_for: timedelta | None = None
    """Time since the last revision of a cluster that is being deleted has disappeared."""
    session: SessionOverview | None = None
    """Workers and slots of the current revision. None means that its master does not respond."""
    workers: tuple[WorkerPod, ...] = ()
    """Worker pods of the current revision."""
    use: SessionUse | None = None
    """The use of its workers. None means that it is not known, or that no decision needs it."""
    failure: str = ""
    """Reason why the last action was refused."""
    refused: frozenset[int] = frozenset()
    """Revisions whose objects could not be applied in the last passes."""
    taken: int = 0
    """Largest number of a revision of an earlier FlinkCluster with this name. 0 means that none exists."""
    settings: Settings = field(default_factory=Settings)
    events: tuple[Event, ...] = ()

    def revision(self, number: int | None) -> RevisionSeen | None:
        """Return a revision that exists, or None."""
        return next((r for r in self.revisions if r.number == number), None)

    def with_status(self, **changes: Any) -> ClusterContext:
        """Return the same context with a changed status."""
        return replace(self, status=self.status.model_copy(update=changes))

    def with_event(self, reason: str, message: str, *, warning: bool = False, key: str = "") -> ClusterContext:
        """Return the same context with one more event. Events with the same key are sent once."""
        event = Event(
            reason, message, "Warning" if warning else "Normal", key or f"{self.generation}/{reason}/{message}"
        )
        return replace(self, events=(*self.events, event))


@dataclass(frozen=True)
class AddFinalizer:
    """Action: add the finalizer, so that a deletion waits for the operator."""


@dataclass(frozen=True)
class RemoveFinalizer:
    """Action: remove the finalizer, so that Kubernetes can delete the FlinkCluster."""


@dataclass(frozen=True)
class CreateRevision:
    """Action: store the spec as the revision with this number."""

    number: int


@dataclass(frozen=True)
class ApplyRevision:
    """Action: apply the objects of a revision."""

    number: int
    workers: int


@dataclass(frozen=True)
class ScaleWorkers:
    """Action: set the number of workers of a revision. Workers that are not busy are removed first."""

    number: int
    workers: int
    busy: frozenset[str] = frozenset()


@dataclass(frozen=True)
class DeleteRevision:
    """Action: delete a revision with all its objects."""

    number: int


ClusterAction = AddFinalizer | RemoveFinalizer | CreateRevision | ApplyRevision | ScaleWorkers | DeleteRevision


@dataclass(frozen=True)
class ClusterDecision:
    """The new status, the events to send, at most one action, and the time until the next step."""

    status: FlinkClusterStatus
    action: ClusterAction | None = None
    events: tuple[Event, ...] = ()
    requeue: timedelta | None = None
    """None means that the next step follows immediately."""
