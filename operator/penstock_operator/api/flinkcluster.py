"""The kind FlinkCluster: a JobManager with workers and without a job. FlinkJobs name it in `spec.cluster`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

from pydantic import Field, ValidationError

from penstock_operator.api.flinkjob import ImagePullSecret, Ingress, NetworkPolicy, Resources, ServiceAccount, Storage
from penstock_operator.api.status.flinkjob_status import Condition
from penstock_operator.api.types import Api, Duration, Scalars, Schemaless, Time

DeletionOfJobs = Literal["Wait", "Suspend", "Force"]


class ClusterMaster(Api):
    """The pods of the JobManager, and the processes of all programs in it."""

    replicas: int = Field(default=1, ge=1, le=2)
    """Number of master pods. If it is 2, one pod runs the programs, and the other one is on standby. The standby takes over within seconds after the first pod is lost, and starts all programs again. If it is 1, Kubernetes restarts a lost master. A change creates a new revision."""
    resources: Resources = Field(default_factory=Resources)
    """Resources of the master's container. Each job needs about 100 MB of memory for its process."""
    pod_template: Schemaless = Field(default_factory=dict)
    """Pod template for the master, merged over spec.podTemplate. Lists are merged by name."""


class WorkerAutoscaling(Api):
    """Automatic number of worker pods: enough for the slots that the jobs of the cluster need."""

    min: int = Field(default=1, ge=1, le=1024)
    """Minimum number of worker pods."""
    max: int = Field(ge=1, le=1024)
    """Maximum number of worker pods. Workers that run a part of a job are kept, even if there are more than `max`."""
    scale_down_after: Duration = timedelta(minutes=5)
    """Time for which the jobs must need fewer workers before idle workers are removed."""

    def within_limits(self, workers: int) -> int:
        """Return the number of workers, limited to `min` and `max`."""
        return max(self.min, min(workers, self.max))


class ClusterWorker(Api):
    """Pods of the TaskManagers. Jobs share them."""

    replicas: int = Field(default=1, ge=1, le=1024)
    """Number of worker pods. `kubectl scale` and a HorizontalPodAutoscaler set this field. A change restarts no pod and no job. If `autoscaling` is set, it is the number at the start, and the current number is in `status.replicas`."""
    autoscaling: WorkerAutoscaling | None = Field(
        default=None,
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "self.min <= self.max",
                    "message": "min must not be greater than max",
                    "fieldPath": ".min",
                },
            ]
        },
    )
    """Limits of an automatic number of worker pods, which follows the slots that the jobs need. Not set: the number is `replicas`."""
    slots: int = Field(default=1, ge=1, le=64)
    """Slots per worker pod. A job needs as many free slots as its parallelism."""
    resources: Resources = Field(default_factory=Resources)
    """Resources of each worker's container. The engine divides the memory limit among the slots."""
    pod_template: Schemaless = Field(default_factory=dict)
    """Pod template for workers, merged over spec.podTemplate. Lists are merged by name."""


class Expression(Api):
    """A requirement on one label."""

    key: str = Field(min_length=1, max_length=316)
    """Key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """Relation between the label and the values."""
    values: tuple[str, ...] = ()
    """Values for In and NotIn."""


class NamespaceSelector(Api):
    """A selector of namespaces by their labels. Every namespace has the label `kubernetes.io/metadata.name`."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    """Labels that the namespace must have."""
    match_expressions: tuple[Expression, ...] = ()
    """Requirements that the namespace must meet. An empty selector selects all namespaces."""

    def matches(self, labels: dict[str, str]) -> bool:
        """Return whether a namespace with these labels is selected.

        >>> NamespaceSelector(matchLabels={"team": "a"}).matches({"team": "a", "env": "test"})
        True
        """
        if any(labels.get(key) != value for key, value in self.match_labels.items()):
            return False
        return all(_meets(labels, expression) for expression in self.match_expressions)


def _meets(labels: dict[str, str], expression: Expression) -> bool:
    present, listed = expression.key in labels, labels.get(expression.key) in expression.values
    return {"In": listed, "NotIn": not listed, "Exists": present, "DoesNotExist": not present}[expression.operator]


class ClusterJobs(Api):
    """The FlinkJobs that may use the cluster."""

    namespace_selector: NamespaceSelector | None = None
    """Other namespaces whose FlinkJobs may use the cluster. Their programs run with the credentials of the cluster. Default: only FlinkJobs in the namespace of the cluster."""


class ClusterDeletion(Api):
    """Deletion of a FlinkCluster while FlinkJobs use it."""

    jobs: DeletionOfJobs = "Wait"
    """Wait: the cluster runs until no FlinkJob uses it. Suspend: the operator stops the jobs with savepoints, then removes the pods. The jobs resume when a cluster of this name exists again. Force: the operator removes the pods immediately. The jobs continue from their newest checkpoints when a cluster of this name exists again. You can change the field while the cluster is being deleted."""


class FlinkClusterSpec(Api):
    """A session cluster: its pods, its storage, and the FlinkJobs that may use it."""

    image: str = Field(min_length=1, max_length=1024)
    """Image of master and workers: Penstock's base image, or an image built from it."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """Pull policy of the image, with the same values as in a pod."""
    image_pull_secrets: tuple[ImagePullSecret, ...] = ()
    """Secrets with which the image is pulled."""
    configuration: Scalars = Field(default_factory=dict)
    """Configuration of the engine. A key that a FlinkJob does not set has the value of the cluster."""
    storage: Storage
    """Locations of the checkpoints and savepoints of all jobs. The programs are stored below the checkpoints."""
    pod_template: Schemaless = Field(default_factory=dict)
    """Pod template for master and workers, with the same rules as in a FlinkJob."""
    master: ClusterMaster = Field(default_factory=ClusterMaster)
    """Pods of the JobManager."""
    worker: ClusterWorker = Field(default_factory=ClusterWorker)
    """Pods of the TaskManagers."""
    jobs: ClusterJobs = Field(default_factory=ClusterJobs)
    """The FlinkJobs that may use the cluster."""
    deletion: ClusterDeletion = Field(default_factory=ClusterDeletion)
    """Deletion of the cluster while FlinkJobs use it."""
    service_account: ServiceAccount = Field(default_factory=ServiceAccount)
    """ServiceAccount of the pods."""
    ingress: Ingress | None = None
    """An Ingress for the REST API and the dashboard."""
    network_policy: NetworkPolicy = Field(default_factory=NetworkPolicy)
    """Access to the cluster's pods over the network."""

    def fields_of_a_job(self) -> dict[str, Any]:
        """Return the fields of the manifest that a FlinkJob with the same pods also has."""
        fields = {key: value for key, value in self.to_manifest().items() if key not in ("deletion", "jobs")}
        fields["worker"] = {key: value for key, value in fields["worker"].items() if key != "autoscaling"}
        return fields


class ClusterRevision(Api):
    """The pods of one version of the spec."""

    number: int
    """Number of the revision. The names of its objects contain it: `NAME-NUMBER-master`."""
    digest: str
    """Hash of the part of the spec from which the pods are created."""
    jobs: int = 0
    """Number of FlinkJobs that run in these pods."""


class NotMoved(Api):
    """A FlinkJob that could not be moved to the newest revision."""

    job: str
    """Namespace and name of the FlinkJob."""
    generation: int
    """Generation of the FlinkJob. An edit of the FlinkJob starts another attempt."""
    reason: str
    """Reason for users."""


class WorkerScaling(Api):
    """The number of workers that `spec.worker.autoscaling` has chosen."""

    workers: int = 0
    """Number of worker pods."""
    slots_needed: int = 0
    """Number of slots that the jobs need."""
    spare_since: Time | None = None
    """Start of the time for which the jobs have needed fewer workers."""
    limited: bool = False
    """Whether the jobs need more workers than `max`."""


class FlinkClusterStatus(Api):
    """The operator's observations of the cluster."""

    observed_generation: int = 0
    """The generation that this status describes."""
    phase: str = "Pending"
    """Pending, Starting, Ready, Upgrading, Degraded or Deleting."""
    message: str = ""
    """Summary for users: the most important fact about the cluster at this time."""
    revision: int | None = None
    """Number of the revision in which jobs start."""
    revisions: tuple[ClusterRevision, ...] = ()
    """The revisions that have pods. Two exist while an upgrade moves jobs."""
    last_number: int = 0
    """Number of the newest revision so far. Numbers are never used again."""
    moving: str | None = None
    """Namespace and name of the FlinkJob that is being moved to the current revision."""
    moving_since: Time | None = None
    """Start time of this move."""
    not_moved: tuple[NotMoved, ...] = ()
    """FlinkJobs that could not be moved, and keep running in the former revision."""
    replicas: int = 0
    """Number of worker pods of the current revision. The scale subresource reports it as its status."""
    ready_workers: int = 0
    """Number of worker pods of the current revision that are ready."""
    workers: str = ""
    """Ready and requested worker pods, for `kubectl get`."""
    slots: int = 0
    """Number of slots of all workers of the current revision."""
    free_slots: int = 0
    """Number of slots that no job uses."""
    jobs: int = 0
    """Number of FlinkJobs that run in the cluster."""
    scaling: WorkerScaling | None = None
    """The autoscaling of the workers, if it is on."""
    label_selector: str | None = None
    """Label selector of the worker pods, for the scale subresource."""
    conditions: tuple[Condition, ...] = Field(
        default=(), json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    )
    """Conditions: Ready, Reconciling, Stalled, Upgraded."""


def parse_cluster_status(raw: object) -> FlinkClusterStatus:
    """Parse a status. Drop the fields that are not valid, and keep the rest.

    >>> parse_cluster_status({"jobs": "many", "revision": 3}).revision
    3
    """
    fields: dict[str, Any] = dict(raw) if isinstance(raw, dict) else {}
    while True:
        try:
            return FlinkClusterStatus.model_validate(fields)
        except ValidationError as error:
            known = {str(e["loc"][0]) for e in error.errors() if e["loc"]} & fields.keys()
            fields = {k: v for k, v in fields.items() if known and k not in known}
