"""The spec of a FlinkJob: what its author writes.

Descriptions end up in `kubectl explain`; the class of every field (what a change of it does to a running job) is in
`reconcile.decide.spec_diff`, and a test holds the two together.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import Field

from penstock_operator.api.types import Api, Duration, Quantities, Scalars, Schemaless, StorageUri

UpgradeMode = Literal["savepoint", "last-state", "stateless"]
StartFrom = Literal["empty", "latest-of-name"]


class Job(Api):
    """The program and how it is run."""

    entry: str = Field(min_length=1, max_length=512)
    """What to run, inside the image: a script (`/opt/job/job.py`) or `package.module:function`."""
    args: tuple[str, ...] = ()
    """Arguments of the program, passed to it unchanged."""
    parallelism: int = Field(default=1, ge=1, le=32768)
    """Subtasks per operator. A change rescales the running job live, without restarting anything. This is what `kubectl scale` sets."""
    max_parallelism: int = Field(
        default=128,
        ge=1,
        le=32768,
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "self == oldSelf",
                    "message": "maxParallelism is the number of key groups of the stored state and cannot be changed; "
                    "create a new FlinkJob to choose another",
                }
            ]
        },
    )
    """Upper bound of parallelism and number of key groups. Fixed for the life of the state."""
    state: Literal["running", "suspended"] = "running"
    """`suspended` stops the job with a savepoint and removes its pods; `running` starts it again from there."""
    upgrade_mode: UpgradeMode = "savepoint"
    """Where the next incarnation gets its state from: `savepoint` stops the job with a savepoint; `last-state` takes the newest complete checkpoint; `stateless` starts empty and gives up all state."""
    initial_savepoint_path: StorageUri | None = None
    """Savepoint or checkpoint for the very first start, and for a redeploy asked for by savepointRedeployNonce. Never read at other times, so it can stay in the manifest."""
    start_from: StartFrom | None = None
    """Where the very first start gets its state from if initialSavepointPath names nothing, and earlier FlinkJobs of this name have left savepoints or checkpoints: `empty` ignores them; `latest-of-name` takes the newest, after their incarnations have been fenced off. Default: empty, with a warning that names the newest."""
    allow_non_restored_state: tuple[str, ...] = ()
    """uids whose state may be dropped because no operator in the new graph has them. Any other state without an operator refuses the start."""
    restart_nonce: int | None = None
    """Change it to restart the job by its upgradeMode without any other change."""
    savepoint_trigger_nonce: int | None = None
    """Change it to take one savepoint of the running job; it becomes a FlinkSnapshot."""
    checkpoint_trigger_nonce: int | None = None
    """Change it to take one checkpoint of the running job; it becomes a FlinkSnapshot."""
    savepoint_redeploy_nonce: int | None = None
    """Change it to throw away what the job has done since and start again from initialSavepointPath. The path is verified before anything is stopped."""


NO_STANDBYS = (
    "standby masters are not supported yet: masters do not wait for each other, and would take the job in turns"
)
"""Why `master.replicas` must be 1."""


class Resources(Api):
    """CPU and memory of a container, as in a pod."""

    requests: Quantities = Field(default_factory=dict)
    """What the scheduler reserves."""
    limits: Quantities = Field(default_factory=dict)
    """What the container may use at most."""


class Master(Api):
    """The JobManager's pods."""

    replicas: int = Field(
        default=1,
        ge=1,
        le=3,
        json_schema_extra={"x-kubernetes-validations": [{"rule": "self == 1", "message": NO_STANDBYS}]},
    )
    """1. More is refused: the engine does not wait for a Lease yet, so a second master would take the job from the first. A lost master is started again and goes on from its newest checkpoint."""
    resources: Resources = Field(default_factory=Resources)
    """Resources of the master's container. The memory limit is shared out among JVM and Python; without requests or limits the least is requested."""
    pod_template: Schemaless = Field(default_factory=dict)
    """Laid over spec.podTemplate for the master. Lists merge by name."""


class Worker(Api):
    """The TaskManagers' pods."""

    slots: int = Field(default=1, ge=1, le=64)
    """Slots per pod. ceil(parallelism / slots) pods are run. Leave it at 1 if a HorizontalPodAutoscaler drives the job, so that one replica is one pod."""
    replicas: int | None = Field(default=None, ge=1, le=32768)
    """At least this many pods. More than the parallelism needs are spares, which shorten recovery from a lost pod."""
    resources: Resources = Field(default_factory=Resources)
    """Resources of each worker's container. The memory limit is shared out among its slots: JVM heap, RocksDB, Python; without requests or limits the least is requested."""
    pod_template: Schemaless = Field(default_factory=dict)
    """Laid over spec.podTemplate for workers. Lists merge by name."""


class Storage(Api):
    """Where checkpoints and savepoints are kept."""

    checkpoints: StorageUri = Field(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "self == oldSelf",
                    "message": "the checkpoint location cannot be changed while its checkpoints may be needed; take a "
                    "savepoint and create a new FlinkJob with initialSavepointPath",
                }
            ]
        }
    )
    """Root of the checkpoints. The operator and the pods read it, the pods write it. Fixed for the life of the job."""
    savepoints: StorageUri
    """Root of the savepoints; those of this job go to a folder of their own below it."""
    secret_name: str | None = Field(default=None, min_length=1, max_length=253)
    """Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, given to the pods as environment and used by the operator. Leave it out with workload identity."""


class Periodic(Api):
    """Snapshots taken by the clock."""

    interval: Duration | None = None
    """Time between two snapshots."""
    cron: str | None = Field(default=None, max_length=120)
    """Five fields (minute hour day-of-month month day-of-week), in UTC."""
    type: Literal["savepoint", "checkpoint"] = "savepoint"
    """What is taken."""


class Retention(Api):
    """Which savepoints made by the operator are kept. Manual ones are never removed by it."""

    count: int = Field(default=10, ge=1, le=1000)
    """Keep at most this many."""
    age: Duration | None = None
    """Remove those that are older, but never the newest."""


class Snapshots(Api):
    """Snapshots besides the engine's own checkpoints."""

    periodic: Periodic | None = Field(
        default=None,
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "has(self.interval) != has(self.cron)",
                    "message": "give exactly one of interval and cron",
                }
            ]
        },
    )
    """Take snapshots by the clock."""
    retention: Retention = Field(default_factory=Retention)
    """Which periodic and upgrade savepoints are kept; works without a running job."""


class Upgrade(Api):
    """How a change that needs new pods is carried out."""

    check: bool = True
    """Prove a new revision in a pod of its own (image, import, graph, state) before the running job is touched."""
    savepoint_timeout: Duration = timedelta(minutes=10)
    """How long one attempt to stop with a savepoint may take."""
    checkpoint_fallback: bool = True
    """With upgradeMode savepoint: if the job is not RUNNING and does not become so, go on from the newest complete checkpoint instead of waiting for ever."""
    warm_start: bool = False
    """Start the pods of the new revision beside those that run, before the job is stopped; they take over with the savepoint. For that time the job has twice the pods; where the new ones cannot come up, or take more than three minutes, the upgrade goes the ordinary way. Counts with upgradeMode savepoint, a RUNNING job, and the same parallelism and number of pods."""
    max_checkpoint_age: Duration | None = None
    """With upgradeMode last-state: take a savepoint instead if the newest complete checkpoint is older."""


class Rollback(Api):
    """What happens when a new revision does not become stable: RUNNING, with a completed checkpoint of its own."""

    enabled: bool = True
    """Go back to the last stable revision from the state it was stopped with."""
    after: Duration = timedelta(minutes=5)
    """Time a new revision has to become stable."""


class Recovery(Api):
    """What happens when the engine has given a job up (state FAILED)."""

    restart_failed: bool = True
    """Start it again from its newest complete checkpoint, with growing pauses (10 s to 5 min)."""
    max_restarts: int | None = Field(default=None, ge=0, le=10000)
    """How often in a row, before it stays Failed; a job that has been RUNNING for ten minutes begins to count anew. Not set: without end."""


class Health(Api):
    """When a job that nobody is changing counts as getting nowhere; an event and `Stalled` say so, and an event when that is over."""

    enabled: bool = True
    """Look after it."""
    restarts: int = Field(default=10, ge=1, le=100)
    """So many restarts of the job by the engine, or of the master's container, within `window`: RestartLoop."""
    window: Duration = timedelta(minutes=10)
    """Time in which restarts are counted."""
    checkpoint_intervals: int = Field(default=30, ge=1, le=100_000)
    """No checkpoint has completed for so many intervals (execution.checkpointing.interval), in whatever state the job is: NoCheckpoint."""
    silence: Duration = timedelta(minutes=5)
    """The master has a pod, and its REST API has not answered for so long: MasterSilent."""
    restart: bool = False
    """Restart the pods from the newest checkpoint then, with pauses that double from `window` to 6 hours."""


class Deletion(Api):
    """What happens when the FlinkJob is deleted. Deletion always ends, at the latest after the timeout."""

    savepoint: bool = False
    """Stop the job with a savepoint first. If none can be made in time, that is said in an event and deletion goes on."""
    timeout: Duration = timedelta(minutes=5)
    """Time for the savepoint and for the pods to go."""
    ttl_after_finished: Duration | None = None
    """Delete the FlinkJob itself so long after the job has ended because all of its input was read, with all that it promised committed; one that failed, was stopped or waits for a person stays. Not set: never. Not for what a GitOps controller applies again: that would start it anew."""
    storage: Literal["Retain", "Delete"] = "Retain"
    """Whether the job's checkpoints are removed. Savepoints never are."""


class ServiceAccount(Api):
    """The account that the pods run under: one for each role, which the operator creates, or one that is there."""

    name: str | None = Field(default=None, min_length=1, max_length=253)
    """A ServiceAccount of the namespace for all pods of the job, which the operator neither creates nor changes nor deletes. Pods get no token for the Kubernetes API whatever rights it has."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Of the accounts that the operator creates: for workload identity, such as eks.amazonaws.com/role-arn."""


class Ingress(Api):
    """An Ingress to the REST API and the dashboard."""

    host: str = Field(min_length=1, max_length=253)
    """Host name."""
    path: str = Field(default="/", pattern=r"^/", max_length=512)
    """Path below which the host leads to the job. Unless it is `/`, the controller must take the prefix off: `/jobs/weather(/|$)(.*)` with pathType ImplementationSpecific and the annotation nginx.ingress.kubernetes.io/rewrite-target `/$2`, for one."""
    path_type: Literal["Prefix", "Exact", "ImplementationSpecific"] = "Prefix"
    """How the path is compared."""
    class_name: str | None = None
    """IngressClass."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of the Ingress."""
    tls_secret_name: str | None = None
    """Secret with the certificate."""


class NetworkPolicy(Api):
    """Who may talk to the job's pods. Within the job all is allowed, from outside only REST."""

    enabled: bool = True
    """Create the NetworkPolicy."""
    rest_from: tuple[Schemaless, ...] = ()
    """NetworkPolicyPeers that may reach the REST port, besides the operator."""


class ImagePullSecret(Api):
    """A Secret for pulling the image."""

    name: str
    """Name of the Secret in the job's namespace."""


class FlinkJobSpec(Api):
    """A streaming job: its program, its pods, its state, and how it is changed."""

    image: str = Field(min_length=1, max_length=1024)
    """The job's image, built from Penstock's base image. Master and workers both run it."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the image is pulled."""
    image_pull_secrets: tuple[ImagePullSecret, ...] = ()
    """Secrets for pulling the image."""
    job: Job = Field(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "self.parallelism <= self.maxParallelism",
                    "message": "parallelism must not be greater than maxParallelism",
                    "fieldPath": ".parallelism",
                },
                {
                    "rule": "!has(self.savepointRedeployNonce) || has(self.initialSavepointPath)",
                    "message": "savepointRedeployNonce needs initialSavepointPath, the savepoint to start from",
                    "fieldPath": ".initialSavepointPath",
                },
            ]
        }
    )
    """The program and how it is run."""
    configuration: Scalars = Field(default_factory=dict)
    """Flat configuration keys (execution.checkpointing.interval: 10s). Keys that the operator sets are refused."""
    storage: Storage
    """Where checkpoints and savepoints are kept."""
    pod_template: Schemaless = Field(default_factory=dict)
    """A pod template laid over the operator's for master and workers. The main container is called `penstock`. Volumes of the same name replace `work` and `tmp`; null removes a default. Fields that would weaken the pods' isolation are refused."""
    master: Master = Field(default_factory=Master)
    """The JobManager's pods."""
    worker: Worker = Field(default_factory=Worker)
    """The TaskManagers' pods."""
    snapshots: Snapshots = Field(default_factory=Snapshots)
    """Snapshots besides the engine's own checkpoints."""
    upgrade: Upgrade = Field(default_factory=Upgrade)
    """How a change that needs new pods is carried out."""
    rollback: Rollback = Field(default_factory=Rollback)
    """What happens when a new revision does not become stable."""
    recovery: Recovery = Field(default_factory=Recovery)
    """What happens when the engine has given the job up."""
    health: Health = Field(default_factory=Health)
    """When a running job counts as getting nowhere."""
    deletion: Deletion = Field(default_factory=Deletion)
    """What happens when the FlinkJob is deleted."""
    service_account: ServiceAccount = Field(default_factory=ServiceAccount)
    """The account that the pods run under."""
    ingress: Ingress | None = None
    """An Ingress to the REST API and the dashboard."""
    network_policy: NetworkPolicy = Field(default_factory=NetworkPolicy)
    """Who may talk to the job's pods."""


def workers_for(spec: FlinkJobSpec, parallelism: int) -> int:
    """The one place where a parallelism becomes a number of worker pods."""
    needed = -(-parallelism // spec.worker.slots)
    return max(needed, spec.worker.replicas or 0)
