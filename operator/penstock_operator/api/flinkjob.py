"""The spec of a FlinkJob, as the author of the job writes it.

The docstrings of the fields are the descriptions in `kubectl explain`. `reconcile.decide.spec_diff` defines the effect
that a change of each field has on a running job. A test checks that `spec_diff` covers all fields.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from penstock_operator.api.autoscaling import Autoscaling
from penstock_operator.api.cluster_ref import CLUSTER_PATTERN
from penstock_operator.api.types import Api, Duration, Quantities, Scalars, Schemaless, StorageUri

UpgradeMode = Literal["savepoint", "last-state", "stateless"]
StartFrom = Literal["empty", "latest-of-name"]


SCRIPT_BYTES = 256 * 1024
"""Maximum size of a script in UTF-8."""
MAX_FILES = 100
"""Maximum number of files in `source.files`."""
Requirement = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[^\r\n]+$")]


class ConfigMapSource(Api):
    """An existing ConfigMap with the program."""

    name: str = Field(max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    """Name of the ConfigMap in the job's namespace."""


class GitSource(Api):
    """A commit of a git repository. Every pod fetches the commit, without its history, before the main container
    starts.
    """

    url: str = Field(
        max_length=1024,
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": r"self.matches('^https?://[^@\\s]+$')",
                    "message": "write https://HOST/PATH without credentials; other protocols, such as ssh, are not supported, and "
                    "credentials belong in secretName",
                }
            ]
        },
    )
    """URL of the repository, as for `git clone`: https:// or http://. The server must support version 2 of git's protocol (git 2.18). The pods do not follow redirects. Keep the commit in the repository as long as the job may start pods."""
    commit: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")
    """Id of the commit, with all 40 hexadecimal digits. Set either this field or `ref`."""
    ref: str | None = Field(default=None, max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/+-]*$")
    """Branch or tag. The operator resolves it once to a commit, which it records in `status.git`. Restarts, rescales and rollbacks use this commit. The operator resolves the reference again after a change of `url`, `ref` or `job.restartNonce`. The platform must allow the server in `jobs.gitServers` of the operator's chart."""
    path: str = Field(default="", max_length=512, pattern=r"^([^/].*)?$")
    """Folder of the repository that contains the program. Default: the whole repository. The folder must contain no symbolic links and no submodules, and at most 100,000 files with 1 GiB in total."""
    secret_name: str | None = Field(default=None, min_length=1, max_length=253)
    """Secret with the keys `username` and `password`, for a private repository. The password can be a token. `url` must then start with https://."""


class Source(Api):
    """A program outside of the image. Set exactly one of `url`, `files`, `configMap`, `git` and `image`."""

    url: str | None = Field(default=None, max_length=1024, pattern=r"^(https?|s3a?)://[^@\s]+$")
    """URL of a file: a zip, a tar.gz, a wheel or a Python module (`.py`), of at most 512 MiB. Every pod downloads the file before its main container starts. For an `s3://` URL the pods use the credentials in `storage.secretName`, or their workload identity. Keep the file at this URL as long as the job may start pods."""
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """SHA-256 checksum of the file at `url`. Set it whenever you set `url`. A pod does not start if the file has another checksum."""
    files: dict[str, str] = Field(default_factory=dict, max_length=MAX_FILES)
    """Files of the program: the text of each file by its name. At most 100 files and 256 KiB in total. The pods have all files in one folder, so the files can import each other."""
    config_map: ConfigMapSource | None = None
    """ConfigMap with the files of the program, with the same limits as `files`. The operator copies the files for each revision. So an edit of the ConfigMap causes an upgrade, and a rollback returns to the former content."""
    git: GitSource | None = Field(
        default=None,
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "has(self.commit) != has(self.ref)",
                    "message": "set exactly one of commit and ref (a branch or a tag)",
                    "fieldPath": ".ref",
                },
                {
                    "rule": "!has(self.secretName) || self.url.startsWith('https://')",
                    "message": "secretName needs an https URL, because http would send the password in plain text",
                    "fieldPath": ".secretName",
                },
            ]
        },
    )
    """Commit of a git repository."""
    image: str | None = Field(default=None, max_length=1024, pattern=r"^[^@\s]+@sha256:[0-9a-f]{64}$")
    """OCI image that contains the program in its root folder. Name it with its digest: `registry.example.com/team/job@sha256:…`. The pods pull the image with `imagePullSecrets` and mount it as an image volume. So the image needs no shell. The cluster must support image volumes: Kubernetes 1.35, or 1.33 with the feature gate ImageVolume, and a container runtime such as containerd 2.1."""


class Job(Api):
    """The program and its execution."""

    entry: str | None = Field(default=None, min_length=1, max_length=512)
    """Program to run: the path of a script in the image (`/opt/job/job.py`), or `package.module:function`. Set exactly one of `entry`, `script` and `sql`."""
    script: str | None = Field(default=None, min_length=1, max_length=SCRIPT_BYTES)
    """Text of the program: one Python file of at most 256 KiB. `spec.image` can then be Penstock's base image. Set exactly one of `entry`, `script` and `sql`."""
    sql: str | None = Field(default=None, min_length=1, max_length=SCRIPT_BYTES)
    """Statements of the program in Flink's SQL, of at most 256 KiB. All INSERT statements run as one job. The image needs Flink's planner. Alternatively, put `apache-flink-libraries==2.3.0` into `requirements`. Set exactly one of `entry`, `script` and `sql`."""
    source: Source | None = Field(
        default=None,
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "[has(self.url), has(self.files), has(self.configMap), has(self.git), has(self.image)].exists_one(given, given)",
                    "message": "set exactly one of url, files, configMap, git and image",
                },
                {
                    "rule": "has(self.url) == has(self.sha256)",
                    "message": "set sha256, the checksum of the file, if url is set, and only then",
                    "fieldPath": ".sha256",
                },
            ]
        },
    )
    """Location of a program that is not in the image. `entry` is then a path inside this source (`job.py`) or `package.module:function`. `spec.image` can be Penstock's base image."""
    requirements: tuple[Requirement, ...] = Field(default=(), max_length=200)
    """Python packages that the program needs, as lines of a requirements file. Each pod installs them before the program starts. If the image contains another version of a package, the program uses the version of the image. To install without a package index, add `--no-index` and `--find-links FOLDER`, with a folder of the image or of a volume. The init container `penstock-requirements` installs the packages. A pod template can add environment variables and volumes to it."""
    args: tuple[str, ...] = ()
    """Arguments of the program, passed unchanged."""
    parallelism: int = Field(default=1, ge=1, le=32768)
    """Number of subtasks per operator. A change rescales the running job live, without a restart. `kubectl scale` sets this field. If `autoscaling` is active, it is the parallelism of the first start."""
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
    """Largest possible parallelism. It is also the number of key groups in the state, so it cannot be changed."""
    state: Literal["running", "suspended"] = "running"
    """`suspended` stops the job with a savepoint and removes its pods. `running` starts it again from that savepoint."""
    upgrade_mode: UpgradeMode = "savepoint"
    """State from which the job starts again after a change of the spec. `savepoint` stops the job with a savepoint. `last-state` uses the newest complete checkpoint. `stateless` starts empty and discards all state."""
    initial_savepoint_path: StorageUri | None = None
    """Savepoint or checkpoint for the first start of the FlinkJob, and for a redeploy with savepointRedeployNonce. The operator ignores it at all other times, so it can remain in the manifest."""
    start_from: StartFrom | None = None
    """State for the first start of this FlinkJob, if earlier FlinkJobs of the same name have left savepoints or checkpoints. `empty` ignores them. `latest-of-name` fences off the earlier incarnations, then restores their newest snapshot. If the field is not set, the job starts empty, and an event names the newest snapshot. initialSavepointPath takes precedence over this field."""
    allow_non_restored_state: tuple[str, ...] = ()
    """uids of operators that the new program no longer has. Their state is dropped. The start fails if the state has any other uid that the program does not have."""
    restart_nonce: int | None = None
    """Change this number to restart the job, with the state that upgradeMode selects. No other change is necessary."""
    savepoint_trigger_nonce: int | None = None
    """Change this number to take one savepoint of the running job. The operator creates a FlinkSnapshot for it."""
    checkpoint_trigger_nonce: int | None = None
    """Change this number to take one checkpoint of the running job. The operator creates a FlinkSnapshot for it."""
    savepoint_redeploy_nonce: int | None = None
    """Change this number to discard the current state and restart the job from initialSavepointPath. The operator verifies the path before it stops the job."""


class Resources(Api):
    """CPU and memory of a container, with the same format as in a pod."""

    requests: Quantities = Field(default_factory=dict)
    """Resources that the scheduler reserves for the container."""
    limits: Quantities = Field(default_factory=dict)
    """Maximum resources that the container may use."""


class Master(Api):
    """Pods of the JobManager."""

    replicas: int = Field(default=1, ge=1, le=2)
    """Number of master pods. If it is 2, one pod runs the job, and the other one is on standby. The standby takes over within seconds after the first pod is lost. If it is 1, Kubernetes restarts a lost master, which then continues the job from its newest checkpoint."""
    resources: Resources = Field(default_factory=Resources)
    """Resources of the master's container. The engine divides the memory limit between the JVM and Python. If you set neither requests nor limits, the operator requests the minimum that the master needs."""
    pod_template: Schemaless = Field(default_factory=dict)
    """Pod template for the master, merged over spec.podTemplate. Lists are merged by name."""


class Worker(Api):
    """Pods of the TaskManagers."""

    slots: int = Field(default=1, ge=1, le=64)
    """Slots per worker pod. The job has ceil(parallelism / slots) worker pods. Use 1 if a HorizontalPodAutoscaler scales the job, so that each replica is one pod."""
    replicas: int | None = Field(default=None, ge=1, le=32768)
    """Minimum number of worker pods. If the parallelism needs fewer pods, the others wait as spares. A spare shortens the recovery from a lost pod."""
    resources: Resources = Field(default_factory=Resources)
    """Resources of each worker's container. The engine divides the memory limit among the slots, for JVM heap, RocksDB and Python. If you set neither requests nor limits, the operator requests the minimum that the worker needs."""
    pod_template: Schemaless = Field(default_factory=dict)
    """Pod template for workers, merged over spec.podTemplate. Lists are merged by name."""


class Storage(Api):
    """Locations of checkpoints and savepoints."""

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
    """Root directory of the checkpoints. The pods read and write it, and the operator reads it. The location cannot be changed."""
    savepoints: StorageUri
    """Root directory of the savepoints. Each job has its own folder in it."""
    secret_name: str | None = Field(default=None, min_length=1, max_length=253)
    """Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and with AWS_ENDPOINT_URL for a storage other than Amazon S3. The pods get these values as environment variables. The operator also uses them. Do not set this field if you use workload identity."""


class Periodic(Api):
    """Snapshots that are taken on a schedule."""

    interval: Duration | None = None
    """Time between two snapshots."""
    cron: str | None = Field(default=None, max_length=120)
    """Cron expression with five fields (minute hour day-of-month month day-of-week), in UTC."""
    type: Literal["savepoint", "checkpoint"] = "savepoint"
    """Kind of snapshot to take."""


class Retention(Api):
    """Limits for the FlinkSnapshots that the operator created. Savepoints, checkpoints and failed snapshots have
    separate limits. Snapshots that a user created are never removed.
    """

    count: int = Field(default=10, ge=1, le=1000)
    """Maximum number of savepoints to keep."""
    age: Duration | None = None
    """Maximum age of a savepoint. Older savepoints are removed, but never the newest one."""
    checkpoints: int = Field(default=10, ge=1, le=1000)
    """Maximum number of FlinkSnapshots of checkpoints to keep. A FlinkSnapshot is removed earlier if the engine has removed its checkpoint."""
    failed: int = Field(default=5, ge=0, le=1000)
    """Maximum number of FlinkSnapshots to keep that are Failed or Abandoned."""


class Snapshots(Api):
    """Snapshots that the operator takes in addition to the engine's checkpoints."""

    periodic: Periodic | None = Field(
        default=None,
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "has(self.interval) != has(self.cron)",
                    "message": "set exactly one of interval and cron",
                }
            ]
        },
    )
    """Take snapshots on a schedule."""
    retention: Retention = Field(default_factory=Retention)
    """Limits for the FlinkSnapshots that the operator created for a nonce, on a schedule, or for an upgrade. The limits also apply while the job does not run."""


class Upgrade(Api):
    """Rollout of a change that needs new pods."""

    check: bool = True
    """Check a new revision in a separate pod before the operator stops the running job. The check covers the image, the imports, the job graph and the state."""
    savepoint_timeout: Duration = timedelta(minutes=10)
    """Timeout of one attempt to stop the job with a savepoint."""
    checkpoint_fallback: bool = True
    """Applies if upgradeMode is savepoint and the job to be stopped does not become RUNNING. true: continue from the newest complete checkpoint. false: wait until a savepoint is possible."""
    warm_start: bool = False
    """Start the pods of the new revision before the operator stops the job. The new pods take over the job from the savepoint, which shortens the interruption. The job has twice as many pods during that time. If the new pods do not start within three minutes, the operator continues without a warm start. This setting applies only if upgradeMode is savepoint, the job is RUNNING, and the parallelism and the number of pods do not change."""
    max_checkpoint_age: Duration | None = None
    """If upgradeMode is last-state and the newest complete checkpoint is older than this, take a savepoint instead."""


class Rollback(Api):
    """Reaction to a new revision that does not become stable. A revision is stable when it has been RUNNING and has
    completed a checkpoint.
    """

    enabled: bool = True
    """Return to the last stable revision if the new one fails. The job continues from the state with which the last stable revision was stopped. If the failed revision has completed a newer checkpoint, the job continues from that checkpoint."""
    after: Duration = timedelta(minutes=5)
    """Time within which a new revision must become stable."""


class Recovery(Api):
    """Reaction to a job that the engine has given up (state FAILED)."""

    restart_failed: bool = True
    """Restart the job from its newest complete checkpoint. The pauses between restarts increase from 10 s to 5 min."""
    max_restarts: int | None = Field(default=None, ge=0, le=10000)
    """Maximum number of consecutive restarts. After that the job remains Failed. The count returns to zero when the job has been RUNNING for ten minutes. Default: no limit."""


class Health(Api):
    """Detection of a running job that makes no progress. An event and the condition `Stalled` report the problem,
    and another event reports its end.
    """

    enabled: bool = True
    """Check the job for these problems."""
    restarts: int = Field(default=10, ge=1, le=100)
    """RestartLoop: the job has this problem if `status.restarts` increases by this number within `window`."""
    window: Duration = timedelta(minutes=10)
    """RestartLoop: period in which restarts are counted."""
    checkpoint_intervals: int = Field(default=30, ge=1, le=100_000)
    """NoCheckpoint: the job has this problem if no checkpoint completes within this number of checkpoint intervals (execution.checkpointing.interval), in any state of the job."""
    silence: Duration = timedelta(minutes=5)
    """MasterSilent: the job has this problem if the REST API of the master does not respond for this time while the master has a pod."""
    restart: bool = False
    """Restart the pods from the newest checkpoint when the job has one of these problems. The pauses between restarts double from `window` to 6 hours."""


class Deletion(Api):
    """Actions before a FlinkJob is deleted. The deletion always ends, at the latest after the timeout."""

    savepoint: bool = False
    """Stop the job with a savepoint before the deletion. If the job is not RUNNING, the operator waits for it until `timeout`. If no savepoint is complete by then, the operator sends an event, continues the deletion, and keeps the checkpoints."""
    timeout: Duration = timedelta(minutes=5)
    """Timeout for the savepoint and the removal of the pods."""
    ttl_after_finished: Duration | None = None
    """Delete the FlinkJob this long after its job has read all of its input and committed all results. The operator never deletes a job that failed, was stopped or needs a user's action. Default: never delete. Do not set it if a GitOps controller manages the FlinkJob: the controller would create the FlinkJob again, which restarts the job."""
    storage: Literal["Retain", "Delete"] = "Retain"
    """Whether to delete the job's checkpoints. Savepoints are never deleted. If `savepoint` is true, the checkpoints are deleted only if that savepoint was completed and verified."""


class ServiceAccount(Api):
    """ServiceAccount of the pods. The operator creates one for each role, unless you name an existing one."""

    name: str | None = Field(default=None, min_length=1, max_length=253)
    """An existing ServiceAccount in the namespace, for all pods of this object. The operator does not create, change or delete it. The pods never get a token for the Kubernetes API, even if the account has permissions."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of the ServiceAccounts that the operator creates, for workload identity, such as eks.amazonaws.com/role-arn."""


class Ingress(Api):
    """An Ingress for the REST API and the dashboard."""

    host: str = Field(min_length=1, max_length=253)
    """Host name."""
    path: str = Field(default="/", pattern=r"^/", max_length=512)
    """Path of the REST API on this host. If the path is not `/`, the ingress controller must remove the prefix from each request. For example, with ingress-nginx: path `/jobs/weather(/|$)(.*)`, pathType ImplementationSpecific and the annotation nginx.ingress.kubernetes.io/rewrite-target `/$2`."""
    path_type: Literal["Prefix", "Exact", "ImplementationSpecific"] = "Prefix"
    """Matching rule for the path."""
    class_name: str | None = None
    """Name of the IngressClass."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of the Ingress."""
    tls_secret_name: str | None = None
    """Secret with the TLS certificate."""


class NetworkPolicy(Api):
    """Access to the job's pods over the network. Pods of the job may connect to each other. Other pods may only
    connect to the REST port.
    """

    enabled: bool = True
    """Create the NetworkPolicy."""
    rest_from: tuple[Schemaless, ...] = ()
    """Clients that may connect to the REST port, in addition to the operator. Each one is a NetworkPolicyPeer."""


class ImagePullSecret(Api):
    """A Secret with which the image is pulled."""

    name: str
    """Name of the Secret, in the namespace of this object."""


_OF_CLUSTER = ("image", "storage", "imagePullSecrets", "podTemplate", "ingress")
"""Fields without a default that a FlinkJob with its own pods has, and a FlinkJob of a FlinkCluster has not."""


def _cluster_rules(schema: dict[str, Any]) -> None:
    """Make the fields optional that a FlinkJob of a FlinkCluster has not, and add the rules about them."""
    schema["required"] = [name for name in schema["required"] if name not in ("image", "storage")]
    none = " && ".join(f"!has(self.{name})" for name in _OF_CLUSTER)
    schema["x-kubernetes-validations"] = [
        {
            "rule": "has(self.cluster) || (has(self.image) && has(self.storage))",
            "message": "set image and storage for a job with its own pods, or cluster for a job that runs in a FlinkCluster",
        },
        {
            "rule": f"!has(self.cluster) || ({none})",
            "message": f"{', '.join(_OF_CLUSTER)} belong to the FlinkCluster; remove them here and set them there",
        },
        {
            "rule": "has(self.cluster) == has(oldSelf.cluster)",
            "message": "cluster cannot be added or removed; create a new FlinkJob with initialSavepointPath",
        },
    ]


class FlinkJobSpec(Api):
    """A streaming job: its program, its pods, its state, and the handling of changes."""

    model_config = ConfigDict(json_schema_extra=_cluster_rules)

    cluster: str | None = Field(default=None, max_length=127, json_schema_extra={"pattern": CLUSTER_PATTERN})
    """FlinkCluster that runs the job: NAME, or NAMESPACE/NAME if the FlinkCluster allows this namespace. The job then has no pods. The program must be in job.script, job.sql or job.source, but not in job.source.image."""
    image: str = Field(min_length=1, max_length=1024)
    """Image of the job, built from Penstock's base image. Master and workers use the same image."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """Pull policy of the image, with the same values as in a pod."""
    image_pull_secrets: tuple[ImagePullSecret, ...] = ()
    """Secrets with which the image is pulled."""
    job: Job = Field(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "self.parallelism <= self.maxParallelism",
                    "message": "parallelism must not be greater than maxParallelism",
                    "fieldPath": ".parallelism",
                },
                {
                    "rule": "[has(self.entry), has(self.script), has(self.sql)].exists_one(given, given)",
                    "message": "set exactly one of entry (a program in the image or in source), script (the text of a program) and sql (SQL statements)",
                    "fieldPath": ".entry",
                },
                {
                    "rule": "!has(self.source) || has(self.entry)",
                    "message": "set entry, the path of the program inside source",
                    "fieldPath": ".entry",
                },
                {
                    "rule": "!has(self.savepointRedeployNonce) || has(self.initialSavepointPath)",
                    "message": "set initialSavepointPath, the savepoint to start from, if savepointRedeployNonce is set",
                    "fieldPath": ".initialSavepointPath",
                },
            ]
        }
    )
    """The program and its execution."""
    configuration: Scalars = Field(default_factory=dict)
    """Configuration of the engine: keys with their values (execution.checkpointing.interval: 10s). The operator sets some keys itself and refuses them here."""
    storage: Storage
    """Locations of checkpoints and savepoints."""
    pod_template: Schemaless = Field(default_factory=dict)
    """Pod template for master and workers, merged over the operator's template. The main container is called `penstock`. Volumes named `work` and `tmp` replace the operator's volumes. null removes a default. Fields that would weaken the isolation of the pods are refused."""
    master: Master = Field(default_factory=Master)
    """Pods of the JobManager."""
    worker: Worker = Field(default_factory=Worker)
    """Pods of the TaskManagers."""
    autoscaling: Autoscaling = Field(
        default_factory=Autoscaling,
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "!has(self.max) || self.min <= self.max",
                    "message": "min must not be greater than max",
                    "fieldPath": ".min",
                },
            ]
        },
    )
    """Change of the parallelism with the load."""
    snapshots: Snapshots = Field(default_factory=Snapshots)
    """Snapshots that the operator takes in addition to the engine's checkpoints."""
    upgrade: Upgrade = Field(default_factory=Upgrade)
    """Rollout of a change that needs new pods."""
    rollback: Rollback = Field(default_factory=Rollback)
    """Reaction to a new revision that does not become stable."""
    recovery: Recovery = Field(default_factory=Recovery)
    """Reaction to a job that the engine has given up."""
    health: Health = Field(default_factory=Health)
    """Detection of a running job that makes no progress."""
    deletion: Deletion = Field(default_factory=Deletion)
    """Actions before the FlinkJob is deleted."""
    service_account: ServiceAccount = Field(default_factory=ServiceAccount)
    """ServiceAccount of the pods."""
    ingress: Ingress | None = None
    """An Ingress for the REST API and the dashboard."""
    network_policy: NetworkPolicy = Field(default_factory=NetworkPolicy)
    """Access to the job's pods over the network."""


TLS_ENABLED, TLS_SECRET = "rest.ssl.enabled", "rest.ssl.secret-name"
"""Keys of `spec.configuration`: whether the master serves REST over TLS, and the Secret with its certificate."""


def rest_tls_secret(spec: FlinkJobSpec) -> str:
    """Return the name of the Secret with the certificate of the REST API, or an empty string if the master serves
    plain HTTP.
    """
    is_on = str(spec.configuration.get(TLS_ENABLED, "false")).strip().lower() == "true"
    return str(spec.configuration.get(TLS_SECRET, "")) if is_on else ""


def workers_for(spec: FlinkJobSpec, parallelism: int) -> int:
    """Return the number of worker pods for a parallelism. No other function computes it."""
    needed = -(-parallelism // spec.worker.slots)
    return max(needed, spec.worker.replicas or 0)
