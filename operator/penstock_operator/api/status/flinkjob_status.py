"""The status of a FlinkJob as a whole, and how the operator parses it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError
from pydantic.alias_generators import to_camel

from penstock_operator.api.status.autoscaling import Autoscaling
from penstock_operator.api.status.incarnation import Ends, HealthStatus, Running, Termination
from penstock_operator.api.status.operation import HistoryEntry, Nonces, Operation, Rejected
from penstock_operator.api.status.snapshots import Checkpoint, RequestedSavepoint, Restore, Superseded
from penstock_operator.api.types import Api, Schemaless, Time, renamed

Phase = Literal[
    "Pending",
    "Starting",
    "Running",
    "Recovering",
    "Rescaling",
    "Upgrading",
    "RollingBack",
    "Suspending",
    "Suspended",
    "Finished",
    "Failed",
    "Deleting",
]


class Condition(Api):
    """A standard Kubernetes condition."""

    type: str
    """Name of the condition. The description of `conditions` lists the names."""
    status: str
    """True, False or Unknown."""
    reason: str
    """Reason in one word that programs can rely on."""
    message: str = ""
    """Explanation for users, with the remedy if action is needed."""
    observed_generation: int = 0
    """Generation of the spec that the condition was evaluated for."""
    last_transition_time: Time
    """Time when the field `status` last changed."""


class ErrorInfo(Api):
    """The last error."""

    reason: str
    """Reason in one word that programs can rely on."""
    message: str
    """Explanation for users."""
    time: Time
    """Time when the operator saw the error."""


class Ownership(Api):
    """The operator that manages the job, if several operators share the cluster."""

    name: str
    """Namespace and name of the operator's Lease."""
    taken_from: str | None = None
    """The former operator, if it did not release the job. The current operator does nothing until enough time has passed for the former one to stop."""


class RevisionDefaults(Api):
    """Defaults of the namespace at the time when a revision was created."""

    revision: str
    """Name of the revision. Its spec includes these defaults."""
    defaults: Schemaless
    """The defaults, in the same format as status.defaults."""


class ResolvedRef(Api):
    """The commit of a branch or tag of a git repository."""

    url: str
    """Address of the repository."""
    ref: str
    """The branch or tag, as in the spec."""
    restart_nonce: int | None = None
    """Value of job.restartNonce when the operator resolved the reference."""
    commit: str
    """The commit. The operator resolves the reference again if one of the other fields changes in the spec."""


class FlinkJobStatus(Api):
    """The operator's observations of the job."""

    observed_generation: int = 0
    """The generation that this status describes."""
    phase: str = "Pending"
    """Phase of the job: Pending, Starting, Running, Recovering, Rescaling, Upgrading, RollingBack, Suspending, Suspended, Finished, Failed or Deleting."""
    phase_since: Time | None = None
    """Start time of the phase."""
    message: str = ""
    """Summary for users: the most important fact about the job at this time."""
    job_state: str | None = None
    """State of the job as the engine reports it: RUNNING, RESTARTING, FAILED and others."""
    job_state_since: Time | None = None
    """Start time of the job state."""
    job_id: str | None = None
    """The engine's job id."""
    parallelism: int | None = None
    """Parallelism of the running job. The scale subresource reports it as its status."""
    label_selector: str | None = None
    """Label selector of the worker pods, for the scale subresource."""
    workers: int = 0
    """Number of worker pods that are ready."""
    restarts: int = 0
    """Number of restarts of the running incarnation. It is the sum of two numbers. The first is the number of restarts of the master's container. The second is the number of failovers or of restarts of worker containers, whichever is larger."""
    last_termination: Termination | None = None
    """The last unexpected termination of a container of the job."""
    ends: Ends | None = None
    """The terminations and restarts of the job's containers that the operator has counted."""
    operator: Ownership | None = None
    """The operator that manages the job."""
    running: Running | None = None
    """The incarnation that runs, or ran last."""
    defaults: Schemaless | None = None
    """Defaults of the namespace (ConfigMaps flinkjob-defaults) in the revision that runs, or ran last."""
    revision_defaults: tuple[RevisionDefaults, ...] = ()
    """Defaults of the namespace in the revision that is rolled out, and in the revisions to which the operator may return."""
    autoscaling: Autoscaling | None = None
    """The autoscaler of the job: its newest decisions, and their inputs."""
    git: ResolvedRef | None = None
    """The commit to which the operator has resolved job.source.git.ref, a branch or a tag."""
    stable_revision: str | None = None
    """The last revision that became stable. A rollback returns to it."""
    rejected: Rejected | None = None
    """The spec that failed and that the operator does not try again."""
    operation: Operation | None = None
    """The operation in progress."""
    last_checkpoint: Checkpoint | None = None
    """Newest completed checkpoint. It is refreshed at most once a minute."""
    last_savepoint: Checkpoint | None = None
    """Newest savepoint that the operator made and verified."""
    requested_savepoints: Annotated[
        tuple[RequestedSavepoint, ...], renamed("requestedSavepoints", former="askedSavepoints")
    ] = ()
    """Savepoints that the operator requested and that have no FlinkSnapshot yet."""
    superseded: tuple[Superseded, ...] = ()
    """Former incarnations whose checkpoints are still in storage."""
    next_restore: Restore | None = None
    """State from which the operator would restart the job now."""
    nonces: Nonces = Field(default_factory=Nonces)
    """The values of the nonces that the operator has processed last."""
    last_periodic_at: Time | None = None
    """Scheduled time of the last periodic snapshot."""
    health: HealthStatus | None = None
    """Health of the running incarnation."""
    error: ErrorInfo | None = None
    """The last error."""
    history: tuple[HistoryEntry, ...] = ()
    """The last ten operations, newest first."""
    conditions: tuple[Condition, ...] = Field(
        default=(), json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    )
    """Standard conditions: Ready, Reconciling, Stalled, Progressing, Running, CheckpointHealthy, and AutoscalingLimited if the autoscaler is on."""

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of this type, or None if it was never set."""
        return next((c for c in self.conditions if c.type == kind), None)


MEMORY = ("running", "operation", "nextRestore", "nonces", "superseded", "stableRevision")
"""The fields that every decision needs: the running incarnation, the operation in progress, and the record of earlier
actions.
"""


_MEMORY = {name for name in FlinkJobStatus.model_fields if to_camel(name) in MEMORY}


def unreadable(raw: object, status: FlinkJobStatus | None = None) -> dict[str, Any]:
    """Return the raw fields of `MEMORY` that cannot be parsed. The operator must not act without them, and must not
    overwrite them.

    Args:
        status: the parsed status. None means to parse `raw`.

    >>> unreadable({"phase": 7, "operation": {"kind": "Upgrade"}})
    {'operation': {'kind': 'Upgrade'}}
    """
    fields = raw if isinstance(raw, dict) else {}
    read = (status or parse_status(fields)).to_manifest(include=_MEMORY)
    return {key: fields[key] for key in MEMORY if fields.get(key) and not read.get(key)}


def parse_status(raw: object) -> FlinkJobStatus:
    """Parse a status. Drop the fields that are not valid instead of raising an error. `unreadable` returns the
    dropped fields of `MEMORY`.

    A user may have edited the status, or another version of the operator may have written it. Deletion must work
    anyway. Fields with a fixed set of values accept any string, because a later version may use new values.

    >>> parse_status({"phase": 7, "observedGeneration": 3}).observed_generation
    3
    """
    fields: dict[str, Any] = dict(raw) if isinstance(raw, dict) else {}
    while True:
        try:
            return FlinkJobStatus.model_validate(fields)
        except ValidationError as error:
            bad = {str(e["loc"][0]) for e in error.errors() if e["loc"]}
            known = bad & fields.keys()
            if not known:
                return FlinkJobStatus()
            fields = {k: v for k, v in fields.items() if k not in known}
