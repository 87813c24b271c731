"""Operations in the status of a FlinkJob: the one in progress, finished ones, and the requests that were processed."""

from __future__ import annotations

from typing import Literal

from penstock_operator.api.status.snapshots import Restore
from penstock_operator.api.types import Api, Time

OperationKind = Literal[
    "Deploy", "Upgrade", "Redeploy", "Suspend", "Resume", "Rollback", "Recover", "Rescale", "Delete"
]


StepName = Literal[
    "Verify",
    "Check",
    "Prepare",
    "Stop",
    "Seal",
    "Teardown",
    "Start",
    "Watch",
    "AddWorkers",
    "Rescale",
    "RemoveWorkers",
    "Dispose",
]


class Operation(Api):
    """The operation in progress. The operator writes it before it executes each step."""

    id: str
    """Id of the operation. The operator derives names, paths and trigger ids from it."""
    kind: str
    """Deploy, Upgrade, Redeploy, Suspend, Resume, Rollback, Recover, Rescale or Delete."""
    step: str
    """The step in progress: Verify, Check, Prepare, Stop, Seal, Teardown, Start, Watch, AddWorkers, Rescale, RemoveWorkers or Dispose."""
    reason: str = ""
    """Cause of the operation."""
    started_at: Time
    """Start time of the operation."""
    step_since: Time
    """Start time of the step."""
    deadline: Time | None = None
    """Time when the operator gives up the step or continues in another way."""
    attempt: int = 0
    """Number of attempts of the step so far."""
    retry_at: Time | None = None
    """Time of the next attempt."""
    target_revision: str | None = None
    """The revision that the operator rolls out."""
    target_generation: int = 0
    """Generation of the FlinkJob with the target revision."""
    target_parallelism: int | None = None
    """The target parallelism."""
    job_id: str | None = None
    """Job id of the incarnation that the operator starts."""
    standby: str | None = None
    """Job id of the incarnation whose pods are on standby (upgrade.warmStart), or wait until the first check has passed."""
    released: bool = False
    """Whether the incarnation on standby may start, from the state in `restore`."""
    trigger_id: str | None = None
    """Id that the operator sends with the request to the engine. The engine executes repeated requests with the same id only once."""
    request_id: str | None = None
    """Id that the engine returned for the request, if it is not triggerId."""
    target_directory: str | None = None
    """Folder of the savepoint. The operator records it before it requests the savepoint."""
    stop_job_id: str | None = None
    """Job id of the incarnation that the operator stops. For a Deploy: job id of the incarnation of an earlier FlinkJob whose state the job continues from."""
    restore: Restore | None = None
    """Source of the state of the new incarnation."""
    source: str | None = None
    """Deploy: the source of the state in the spec. It is a path, `empty`, `latest-of-name`, or not set."""
    looked_back: bool = False
    """Deploy: whether the operator has searched the storage for state of earlier FlinkJobs of this name."""
    accepted: bool = False
    """Whether the API server accepts the objects of the target revision."""
    checked_apart: bool = False
    """Deploy: whether a separate pod checks the program, because the master gave no result."""
    fenced: bool = False
    """Whether the operator has fenced off the stopped incarnation. It can then complete no checkpoint, even if one of its pods still runs."""
    take_newest: bool = False
    """Whether to use a checkpoint that is newer than `restore`, if such a checkpoint exists when the pods are gone."""
    never_started: bool = False
    """Rollback: whether no container of the failed revision has ever run. If so, that revision has committed nothing."""
    saved: bool = False
    """Delete: whether the checkpoints are no longer needed, because the savepoint is complete and verified or the job has read all of its input."""
    fallback_revision: str | None = None
    """The revision to return to."""
    fallback_restore: Restore | None = None
    """Source of the state for the fallback revision."""
    fallback_parallelism: int | None = None
    """The parallelism to return to."""
    worker_memory: str | None = None
    """Memory limit of the workers that the operator starts, if `autoscaling.memory` replaces that of the spec."""
    fallback_worker_memory: str | None = None
    """Memory limit of the workers of the incarnation to return to, if `autoscaling.memory` had replaced that of the spec."""
    message: str = ""
    """Reason why the operation waits."""
    blocked: str | None = None
    """Reason why the operation cannot continue without a user's action."""


class Rejected(Api):
    """A spec that failed and was given up. The operator does not try it again until a relevant field changes."""

    fingerprint: str
    """Hash of all fields that decide whether the spec can work."""
    revision: str
    """Revision with this spec."""
    generation: int
    """Generation of the FlinkJob with this spec."""
    reason: str
    """Reason of the failure."""
    message: str = ""
    """Explanation for users, with the remedy."""
    time: Time
    """Time when the spec was given up."""


class HistoryEntry(Api):
    """An operation that has ended."""

    kind: str
    """Kind of the operation."""
    outcome: str
    """Succeeded, Failed or Abandoned."""
    revision: str | None = None
    """Target revision of the operation."""
    generation: int = 0
    """Generation of the FlinkJob with that revision."""
    started_at: Time
    """Start time of the operation."""
    finished_at: Time
    """End time of the operation."""
    message: str = ""
    """Details."""


class Nonces(Api):
    """The last nonces that the operator has processed."""

    savepoint_trigger: int | None = None
    """Value of job.savepointTriggerNonce."""
    checkpoint_trigger: int | None = None
    """Value of job.checkpointTriggerNonce."""
    savepoint_redeploy: int | None = None
    """Value of job.savepointRedeployNonce."""
    triggers: int | None = None
    """Number of savepoints and checkpoints taken by nonce. It distinguishes the second use of a nonce from the first."""
