"""The status of a FlinkJob: what the operator knows, has done and is about to do.

The status answers, without logs: which phase and since when; for which generation; what runs; what it was restored
from and why; what the next restore would use and how old that is; which operation is in progress, its step and
deadline; what went wrong last. It is also the operator's only memory: `operation` is written before each step is
done, so that a process that dies anywhere finds out what it was about to do.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic.alias_generators import to_camel

from penstock_operator.api.types import Api, Schemaless, Time

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


class Condition(Api):
    """A standard Kubernetes condition."""

    type: str
    """Ready, Reconciling, Stalled, Progressing, Running or CheckpointHealthy."""
    status: str
    """Whether it holds: True, False or Unknown."""
    reason: str
    """A stable word for programs."""
    message: str = ""
    """For people; says what to do where something is to be done."""
    observed_generation: int = 0
    """The generation of the spec it was judged for."""
    last_transition_time: Time
    """When status last changed."""


class Checkpoint(Api):
    """A completed checkpoint or savepoint."""

    path: str
    """Where it is."""
    id: int | None = None
    """Its number."""
    job_id: str | None = None
    """The incarnation that made it."""
    revision: str | None = None
    """The revision that made it."""
    time: Time | None = None
    """When it was completed."""
    snapshot: str | None = None
    """The FlinkSnapshot that stands for it."""


class Restore(Api):
    """Where an incarnation of the job gets its state from."""

    kind: str
    """Fresh: empty. Savepoint or Checkpoint: path. Latest: the newest complete checkpoint of its own job id."""
    path: str | None = None
    """Savepoint or checkpoint."""
    checkpoint_id: int | None = None
    """Number of the checkpoint."""
    time: Time | None = None
    """When the snapshot was taken."""
    reason: str = ""
    """Why this one."""
    passed_over: Checkpoint | None = None
    """The newest state that earlier FlinkJobs of this name had left, if the first start did not take it."""


class Running(Api):
    """The incarnation of the job that has pods, or had them last."""

    revision: str
    """Name of the ControllerRevision that holds its spec."""
    generation: int
    """Generation of the FlinkJob it was made from."""
    job_id: str
    """The engine's job id, new for every incarnation; the folder of its checkpoints."""
    image: str
    """Its image."""
    parallelism: int
    """Its parallelism."""
    args_hash: str = ""
    """Hash of entry and arguments."""
    started_at: Time
    """When its pods were asked for."""
    restored_from: Restore
    """What it started from."""
    warm: bool = False
    """Its pods were started before the job stopped; where its state comes from is in the record `release` beside its checkpoints."""
    door: str = ""
    """What comes behind the name of the Service by which its workers find the master; two incarnations at a time have different ones."""
    stable: bool = False
    """It has been RUNNING and has completed a checkpoint of its own."""
    had_checkpoint: bool = False
    """A checkpoint of this incarnation was seen; without one readable it is never started empty again."""
    finished_at: Time | None = None
    """When the job was seen to be FINISHED."""
    end_of_input: bool = False
    """It finished because all of its input was read; False if somebody has stopped it, or if the engine does not say."""
    adopted_at: Time | None = None
    """When it was taken over without a status; an operation that was under way then is not known."""
    failures: int = 0
    """How often in a row it was started again after the engine had given it up, without having been RUNNING for ten minutes since."""
    failed_at: Time | None = None
    """When the engine was seen to have given it up."""
    failure: str = ""
    """Why it did, in its words."""


class Operation(Api):
    """What the operator is doing. Written before each step is done."""

    id: str
    """Identity; names, paths and trigger ids are derived from it."""
    kind: str
    """What is being done: Deploy, Upgrade, Redeploy, Suspend, Resume, Rollback, Recover, Rescale or Delete."""
    step: str
    """The step in progress: Verify, Check, Prepare, Stop, Seal, Teardown, Start, Watch, AddWorkers, Rescale, RemoveWorkers or Dispose."""
    reason: str = ""
    """What caused it."""
    started_at: Time
    """When it began."""
    step_since: Time
    """When the step began."""
    deadline: Time | None = None
    """When the step is given up or its fallback is taken."""
    attempt: int = 0
    """Attempts of the step so far."""
    retry_at: Time | None = None
    """When the next attempt is made."""
    target_revision: str | None = None
    """The revision that is being brought up."""
    target_generation: int = 0
    """Generation of the FlinkJob it came from."""
    target_parallelism: int | None = None
    """The parallelism it is going to."""
    job_id: str | None = None
    """Job id of the incarnation that is being started."""
    standby: str | None = None
    """Job id of the incarnation whose pods stand by beside those that run."""
    released: bool = False
    """The incarnation that stood by was told what it starts from."""
    trigger_id: str | None = None
    """Id under which the engine was asked; asking twice with it does the thing once."""
    request_id: str | None = None
    """The id the engine answered with, where it chose its own."""
    target_directory: str | None = None
    """Folder of the savepoint, chosen before it is triggered."""
    stop_job_id: str | None = None
    """Job id of the incarnation that is being stopped; of a Deploy, of the earlier FlinkJob's that it goes on from."""
    restore: Restore | None = None
    """What the started incarnation gets its state from."""
    source: str | None = None
    """Deploy: what the spec says of where to start: a path, empty, latest-of-name, or nothing."""
    looked_back: bool = False
    """Deploy: it is known what earlier FlinkJobs of this name have left in storage."""
    accepted: bool = False
    """The API server would take the objects of the revision that is being brought up."""
    fenced: bool = False
    """The incarnation that was stopped cannot complete a checkpoint any more, even if a pod of it lives on somewhere."""
    take_newest: bool = False
    """Once the pods are gone, a checkpoint newer than `restore` is taken instead of it."""
    never_started: bool = False
    """Rollback: no container of the revision that is given up has ever run, so that it has committed nothing."""
    fallback_revision: str | None = None
    """The revision to go back to."""
    fallback_restore: Restore | None = None
    """What to restore it from."""
    fallback_parallelism: int | None = None
    """The parallelism to go back to."""
    message: str = ""
    """What is being waited for."""
    blocked: str | None = None
    """Reason why it cannot go on without a person."""


class Termination(Api):
    """How a container of the job was ended last, without anybody having asked for it."""

    pod: str
    """The pod, which may be gone."""
    role: str
    """master or worker."""
    container: str = ""
    """Empty: the whole pod."""
    reason: str
    """OOMKilled, ContainerFailed, Evicted, …"""
    exit_code: int | None = None
    """The container's."""
    memory_limit: str | None = None
    """The container's."""
    message: str
    """In words."""
    remedy: str = ""
    """What to do."""
    job_id: str
    """The incarnation it was part of."""
    time: Time
    """When it ended."""
    count: int = 1
    """How often the like of it has ended so since then."""
    since: Time
    """When that began."""


class EndSeries(Api):
    """Like ends of containers, which come again and again."""

    role: str
    """master or worker."""
    container: str = ""
    """Empty: the whole pod."""
    reason: str
    """OOMKilled, ContainerFailed, Evicted, …"""
    count: int
    """How many."""
    since: Time
    """When the first of them was."""
    time: Time
    """When the last of them was."""


class Ends(Api):
    """Ends of containers and restarts of one incarnation that are counted; so that none is counted twice, or not at all."""

    job_id: str
    """The incarnation."""
    counted: dict[str, Time] = Field(default_factory=dict)
    """By pod and container (POD/CONTAINER): up to when."""
    series: tuple[EndSeries, ...] = ()
    """How often what has come."""
    restarts: dict[str, int] = Field(default_factory=dict)
    """Restarts of containers by role, and failovers, as `failover`; also those that pods have told which are gone."""
    told: dict[str, int] = Field(default_factory=dict)
    """By pod, how many of its restarts are in these; by start of the master that leads (POD#RESTARTS), how many of its failovers."""


class AskedSavepoint(Api):
    """A savepoint that the operator has asked for, until a FlinkSnapshot stands for it or none can come of it any more."""

    directory: str
    """The folder that it goes to."""
    kind: str
    """The operation that asked for it: Upgrade, Suspend or Delete."""
    job_id: str
    """The incarnation that was asked."""
    revision: str | None = None
    """Its revision: its settings open the storage that it is in."""
    time: Time
    """When it was asked for."""
    path: str | None = None
    """Where it is, once it is known to be complete."""
    retry_at: Time | None = None
    """When it is looked for, or recorded, again."""


class Superseded(Api):
    """An incarnation whose checkpoints are removed once the one that runs has proved itself."""

    job_id: str
    """Its job id."""
    revision: str | None = None
    """Its revision: its settings open the storage that they are in."""
    failures: int = 0
    """Failed attempts to remove them."""
    retry_at: Time | None = None
    """When the next attempt is made."""
    borrowed: bool = False
    """Of an earlier FlinkJob of the name, and what this one was started from."""


class Rejected(Api):
    """A spec that was tried and given up; it is not tried again until something in it changes."""

    fingerprint: str
    """Hash of everything in the spec that decides whether it can work."""
    revision: str
    """Its revision."""
    generation: int
    """The generation it came with."""
    reason: str
    """Why."""
    message: str = ""
    """In words, with what to do."""
    time: Time
    """When."""


class HistoryEntry(Api):
    """An operation that ended."""

    kind: str
    """What was done."""
    outcome: str
    """How it ended: Succeeded, Failed or Abandoned."""
    revision: str | None = None
    """The revision it was for."""
    generation: int = 0
    """The generation it was for."""
    started_at: Time
    """When it began."""
    finished_at: Time
    """When it ended."""
    message: str = ""
    """Details."""


class Nonces(Api):
    """The nonces that have been acted on."""

    savepoint_trigger: int | None = None
    """job.savepointTriggerNonce."""
    checkpoint_trigger: int | None = None
    """job.checkpointTriggerNonce."""
    savepoint_redeploy: int | None = None
    """job.savepointRedeployNonce."""


class ErrorInfo(Api):
    """The last thing that went wrong."""

    reason: str
    """A stable word."""
    message: str
    """In words."""
    time: Time
    """When it was seen."""


class Ownership(Api):
    """Which operator looks after the job, where there are several."""

    name: str
    """Namespace and name of its Lease."""
    taken_from: str | None = None
    """The former one, which did not let go; as long as it may be at work, nothing is done."""


class HealthStatus(Api):
    """Whether the running incarnation gets anywhere."""

    job_id: str
    """The incarnation that this speaks of."""
    restarts: int = 0
    """Its restarts when they were last counted."""
    restarts_at: tuple[Time, ...] = ()
    """When the last of them were seen."""
    broken: str | None = None
    """The rule that is broken: RestartLoop, NoCheckpoint or MasterSilent."""
    message: str = ""
    """In words, with what to do."""
    since: Time | None = None
    """Since when it is broken, or well."""
    pod_restarts: int = 0
    """How often in a row the pods were restarted for it."""
    restarted_at: Time | None = None
    """When they were last."""


class RevisionDefaults(Api):
    """What was preset when a revision was made, if anything was."""

    revision: str
    """The revision, which contains it."""
    defaults: Schemaless
    """See `FlinkJobStatus.defaults`."""


class FlinkJobStatus(Api):
    """What the operator knows about the job."""

    observed_generation: int = 0
    """The generation that this status speaks of."""
    phase: str = "Pending"
    """Where the job is in its life: Pending, Starting, Running, Recovering, Rescaling, Upgrading, RollingBack, Suspending, Suspended, Finished, Failed or Deleting."""
    phase_since: Time | None = None
    """Since when."""
    message: str = ""
    """The one thing a person should know now."""
    job_state: str | None = None
    """The engine's own word: RUNNING, RESTARTING, FAILED, …"""
    job_state_since: Time | None = None
    """Since when."""
    job_id: str | None = None
    """The engine's job id."""
    parallelism: int | None = None
    """Parallelism of the running job; status of the scale subresource."""
    label_selector: str | None = None
    """Selects the worker pods; for the scale subresource."""
    workers: int = 0
    """Worker pods that are ready."""
    restarts: int = 0
    """Failovers of the running incarnation, and restarts of its master's container; of its workers' containers, if those are more."""
    last_termination: Termination | None = None
    """How a container of the job was ended last, without anybody having asked for it."""
    ends: Ends | None = None
    """Which ends of containers of the job are counted."""
    operator: Ownership | None = None
    """Which operator looks after the job."""
    running: Running | None = None
    """What runs, or ran last."""
    defaults: Schemaless | None = None
    """What was preset for the namespace (ConfigMaps flinkjob-defaults) for the revision that runs, or ran last, which contains it."""
    revision_defaults: tuple[RevisionDefaults, ...] = ()
    """The same of the revisions that are being brought up, or would be gone back to."""
    stable_revision: str | None = None
    """The last revision that was seen working; rollback goes there."""
    rejected: Rejected | None = None
    """The spec that was tried and given up."""
    operation: Operation | None = None
    """What is being done."""
    last_checkpoint: Checkpoint | None = None
    """Newest completed checkpoint; refreshed at most once a minute."""
    last_savepoint: Checkpoint | None = None
    """Newest savepoint that the operator made and verified."""
    asked_savepoints: tuple[AskedSavepoint, ...] = ()
    """Savepoints that were asked for and that no FlinkSnapshot stands for yet."""
    superseded: tuple[Superseded, ...] = ()
    """Former incarnations whose checkpoints are still on storage."""
    next_restore: Restore | None = None
    """What the job would be restored from if it had to be started now."""
    nonces: Nonces = Field(default_factory=Nonces)
    """The nonces that have been acted on."""
    last_periodic_at: Time | None = None
    """When the clock last asked for a snapshot."""
    health: HealthStatus | None = None
    """Whether what runs gets anywhere."""
    error: ErrorInfo | None = None
    """The last thing that went wrong."""
    history: tuple[HistoryEntry, ...] = ()
    """The last ten operations, newest first."""
    conditions: tuple[Condition, ...] = Field(
        default=(), json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    )
    """Standard conditions: Ready, Reconciling, Stalled, Progressing, Running, CheckpointHealthy."""

    def condition(self, kind: str) -> Condition | None:
        """The condition of this type, if it was ever set."""
        return next((c for c in self.conditions if c.type == kind), None)


MEMORY = ("running", "operation", "nextRestore", "nonces", "superseded", "stableRevision")
"""The fields without which nothing may be decided: what runs, what is being done, and what was done before."""

_MEMORY = {name for name in FlinkJobStatus.model_fields if to_camel(name) in MEMORY}


def unreadable(raw: object, status: FlinkJobStatus | None = None) -> dict[str, Any]:
    """Of the operator's memory what cannot be read, as it is: nothing may be decided without it, or written over it.

    Args:
        status: what could be read; None: read it.

    >>> unreadable({"phase": 7, "operation": {"kind": "Upgrade"}})
    {'operation': {'kind': 'Upgrade'}}
    """
    fields = raw if isinstance(raw, dict) else {}
    read = (status or parse_status(fields)).to_manifest(include=_MEMORY)
    return {key: fields[key] for key in MEMORY if fields.get(key) and not read.get(key)}


def parse_status(raw: object) -> FlinkJobStatus:
    """Read a status as well as it can be: a field that makes no sense is dropped, never an error; see `unreadable`.

    Somebody may have edited it, or another version of the operator may have written it; deletion must still work. Words that
    stand for one of several are read whatever they are, since a later version knows more of them.

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
