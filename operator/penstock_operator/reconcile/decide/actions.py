"""All possible actions on a FlinkJob. The package `act` executes them.

Actions are idempotent. Each one describes the required state, and contains everything it needs. So executing it
twice, or again after a crash, changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.reconcile.observation import Repaired, Role
    from penstock_operator.resources.incarnation import Incarnation


@dataclass(frozen=True)
class AddFinalizer:
    """Action: add the finalizer, so that a deletion waits for the operator."""


@dataclass(frozen=True)
class RemoveFinalizer:
    """Action: remove the finalizer, so that Kubernetes can delete the FlinkJob."""


@dataclass(frozen=True)
class RecordRevision:
    """Action: store a spec as a ControllerRevision."""

    name: str
    spec: FlinkJobSpec


@dataclass(frozen=True)
class PruneRevisions:
    """Action: delete ControllerRevisions to which nothing refers."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class TryObjects:
    """Action: check with a dry run whether the API server accepts the objects of a revision."""

    incarnation: Incarnation
    desired: FlinkJobSpec
    workers: int


@dataclass(frozen=True)
class RunCheck:
    """Action: create the pod that checks a revision."""

    operation: str
    revision: str
    spec: FlinkJobSpec
    against: str | None


@dataclass(frozen=True)
class DeleteCheck:
    """Action: delete the check pod. `force` deletes it even if its node does not report that the pod has ended."""

    name: str
    force: bool = False


@dataclass(frozen=True)
class ApplyChildren:
    """Action: apply the objects around the pods (accounts, Secret, ConfigMap, Services, policies)."""

    incarnation: Incarnation
    desired: FlinkJobSpec
    """The current spec, for objects that may change while the incarnation runs."""


@dataclass(frozen=True)
class ApplyPods:
    """Action: apply the child objects and the Deployments of an incarnation."""

    incarnation: Incarnation
    desired: FlinkJobSpec
    workers: int
    roles: tuple[Role, ...] = ("master", "worker")


@dataclass(frozen=True)
class CreateStandby:
    """Action: apply Deployments whose new pods wait next to the pods of the running incarnation."""

    running: Incarnation
    incarnation: Incarnation
    desired: FlinkJobSpec
    workers: int


@dataclass(frozen=True)
class ReleaseIncarnation:
    """Action: send the source of the state to an incarnation on standby, which then starts."""

    job_id: str
    path: str
    """Location of a savepoint or checkpoint. Empty means empty state."""


@dataclass(frozen=True)
class DeleteJob:
    """Action: request the deletion of the FlinkJob itself."""


@dataclass(frozen=True)
class ScaleDown:
    """Action: delete all pods of the job, but keep the Deployments."""


@dataclass(frozen=True)
class ForceDelete:
    """Action: delete pods from the API although their end is not confirmed. Only used after their incarnation was
    fenced.
    """

    names: tuple[str, ...]


@dataclass(frozen=True)
class RestartMaster:
    """Action: delete these pods of the master with their grace period. The Deployment creates a new pod of the same
    incarnation.
    """

    names: tuple[str, ...]


@dataclass(frozen=True)
class ScaleWorkers:
    """Action: set the number of worker pods. Idle pods are deleted first."""

    replicas: int
    busy: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ApplyParallelism:
    """Action: store the new parallelism for a master that restarts, and set the number of workers."""

    incarnation: Incarnation
    replicas: int
    busy: frozenset[str] = frozenset()


@dataclass(frozen=True)
class StopWithSavepoint:
    """Action: request a stop from the engine. The engine takes a savepoint at a barrier and ends the job."""

    job_id: str
    directory: str
    trigger_id: str


@dataclass(frozen=True)
class TriggerCheckpoint:
    """Action: request a checkpoint from the engine."""

    job_id: str
    trigger_id: str


@dataclass(frozen=True)
class Rescale:
    """Action: request another parallelism from the engine."""

    job_id: str
    parallelism: int
    trigger_id: str


@dataclass(frozen=True)
class ConfigureAutoscaler:
    """Action: replace the settings of the autoscaler of the running job."""

    job_id: str
    keys: Mapping[str, str]
    configuration_id: str


@dataclass(frozen=True)
class CreateSnapshot:
    """Action: create a FlinkSnapshot. Its name prevents a duplicate."""

    name: str
    trigger: Literal["nonce", "periodic", "upgrade"]
    kind: Literal["savepoint", "checkpoint"]
    path: str | None = None
    """Location of an existing savepoint. None means that the FlinkSnapshot takes a new savepoint."""
    revision: str | None = None
    """The revision that made that savepoint."""


@dataclass(frozen=True)
class DeleteSnapshot:
    """Action: delete a FlinkSnapshot. Its own loop deletes the files."""

    name: str


@dataclass(frozen=True)
class FenceIncarnation:
    """Action: write the next leader number to an incarnation's folder, so that none of its masters can complete
    another checkpoint.
    """

    job_id: str


@dataclass(frozen=True)
class FencePredecessors:
    """Action: fence all incarnations that earlier FlinkJobs of the name have left."""

    job_ids: tuple[str, ...]


@dataclass(frozen=True)
class DisposeJobStorage:
    """Action: delete the checkpoints of an incarnation."""

    job_id: str
    revision: str | None = None
    """Revision of the incarnation. Its settings give access to the storage of the checkpoints."""


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
    | CreateStandby
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
    | ConfigureAutoscaler
    | CreateSnapshot
    | DeleteSnapshot
    | FenceIncarnation
    | FencePredecessors
    | DisposeJobStorage
)


def applied_again(action: Action) -> tuple[Repaired, ...]:
    """Return the groups of objects that the action repairs."""
    if isinstance(action, ApplyChildren):
        return ("children",)
    return action.roles if isinstance(action, ApplyPods) else ()
