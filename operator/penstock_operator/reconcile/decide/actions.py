"""Everything that can be done for a FlinkJob; `act` does it.

Actions are idempotent. Each says what it wants to be true, and carries everything it needs, so that doing it twice,
or once more after a crash, changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.reconcile.observation import Repaired, Role
    from penstock_operator.resources.incarnation import Incarnation


@dataclass(frozen=True)
class AddFinalizer:
    """Make deletion wait for the operator."""


@dataclass(frozen=True)
class RemoveFinalizer:
    """Let the FlinkJob go."""


@dataclass(frozen=True)
class RecordRevision:
    """Store a spec as a ControllerRevision."""

    name: str
    spec: FlinkJobSpec


@dataclass(frozen=True)
class PruneRevisions:
    """Delete ControllerRevisions that nothing refers to any more."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class TryObjects:
    """Ask the API server whether it would take what a revision is made of, without making any of it."""

    incarnation: Incarnation
    desired: FlinkJobSpec
    workers: int


@dataclass(frozen=True)
class RunCheck:
    """Create the pod that proves a revision."""

    operation: str
    revision: str
    spec: FlinkJobSpec
    against: str | None


@dataclass(frozen=True)
class DeleteCheck:
    """Remove the check pod; with `force` although its node does not say that it has ended."""

    name: str
    force: bool = False


@dataclass(frozen=True)
class ApplyChildren:
    """Everything around the pods: accounts, Secret, ConfigMap, Services, policies."""

    incarnation: Incarnation
    desired: FlinkJobSpec
    """The current spec, for objects that may change while the incarnation runs."""


@dataclass(frozen=True)
class ApplyPods:
    """Children and Deployments of an incarnation."""

    incarnation: Incarnation
    desired: FlinkJobSpec
    workers: int
    roles: tuple[Role, ...] = ("master", "worker")


@dataclass(frozen=True)
class StandBy:
    """Deployments of an incarnation whose pods come beside those of the one that runs, and wait."""

    running: Incarnation
    incarnation: Incarnation
    desired: FlinkJobSpec
    workers: int


@dataclass(frozen=True)
class ReleaseIncarnation:
    """Tell an incarnation that stands by where its state comes from: it starts."""

    job_id: str
    path: str
    """Of a savepoint or checkpoint; empty: nothing to restore."""


@dataclass(frozen=True)
class DeleteJob:
    """Ask for the deletion of the FlinkJob itself, which then takes its way."""


@dataclass(frozen=True)
class ScaleDown:
    """Take all pods of the job away; the Deployments stay."""


@dataclass(frozen=True)
class ForceDelete:
    """Remove pods from the API although nobody can say that they have ended; only after they were fenced off."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class RestartMaster:
    """Delete these pods of the master, with the time they have to end; their Deployment makes another, of the same incarnation."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class ScaleWorkers:
    """Set the number of worker pods; idle ones go first."""

    replicas: int
    busy: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ApplyParallelism:
    """Write the new parallelism down, for a master that restarts, and set the number of workers."""

    incarnation: Incarnation
    replicas: int
    busy: frozenset[str] = frozenset()


@dataclass(frozen=True)
class StopWithSavepoint:
    """Ask the engine to take a savepoint at a barrier and to end the job."""

    job_id: str
    directory: str
    trigger_id: str


@dataclass(frozen=True)
class TriggerCheckpoint:
    """Ask the engine for a checkpoint now."""

    job_id: str
    trigger_id: str


@dataclass(frozen=True)
class Rescale:
    """Ask the engine for another parallelism."""

    job_id: str
    parallelism: int
    trigger_id: str


@dataclass(frozen=True)
class CreateSnapshot:
    """Create a FlinkSnapshot; the name makes it one."""

    name: str
    trigger: Literal["nonce", "periodic", "upgrade"]
    kind: Literal["savepoint", "checkpoint"]
    path: str | None = None
    """Set for a savepoint that exists already."""
    revision: str | None = None
    """The revision that made that savepoint."""


@dataclass(frozen=True)
class DeleteSnapshot:
    """Delete a FlinkSnapshot; its own loop removes the files."""

    name: str


@dataclass(frozen=True)
class FenceIncarnation:
    """Take the next number in an incarnation's folder, so that none of its masters can complete a checkpoint any more."""

    job_id: str


@dataclass(frozen=True)
class FencePredecessors:
    """The same for all incarnations that earlier FlinkJobs of the name have left."""

    job_ids: tuple[str, ...]


@dataclass(frozen=True)
class DisposeJobStorage:
    """Delete the checkpoints of an incarnation."""

    job_id: str
    revision: str | None = None
    """What it was made from: its settings open the storage that they are in."""


Action = (
    AddFinalizer
    | RemoveFinalizer
    | RecordRevision
    | PruneRevisions
    | TryObjects
    | RunCheck
    | DeleteCheck
    | ApplyChildren
    | ApplyPods
    | StandBy
    | ReleaseIncarnation
    | DeleteJob
    | ScaleDown
    | ForceDelete
    | RestartMaster
    | ScaleWorkers
    | ApplyParallelism
    | StopWithSavepoint
    | TriggerCheckpoint
    | Rescale
    | CreateSnapshot
    | DeleteSnapshot
    | FenceIncarnation
    | FencePredecessors
    | DisposeJobStorage
)


def applied_again(action: Action) -> tuple[Repaired, ...]:
    """What an action of upkeep mends."""
    if isinstance(action, ApplyChildren):
        return ("children",)
    return action.roles if isinstance(action, ApplyPods) else ()
