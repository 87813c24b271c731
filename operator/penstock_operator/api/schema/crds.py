"""The CustomResourceDefinitions: schemas, printer columns, short names, and the subresources scale and status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock_operator.api.flinkcluster import FlinkClusterSpec, FlinkClusterStatus
from penstock_operator.api.flinkjob import FlinkJobSpec
from penstock_operator.api.flinksnapshot import FlinkSnapshotSpec, FlinkSnapshotStatus
from penstock_operator.api.schema.structural import structural_schema
from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
from penstock_operator.api.version import GROUP, VERSION

if TYPE_CHECKING:
    from penstock_operator.api.types import Api

MAX_NAME = 45
"""Maximum length of the name. The names of child objects add a suffix, and may have at most 63 characters."""

MAX_CLUSTER_NAME = MAX_NAME - 7
"""Maximum length of the name of a FlinkCluster. The names of its objects also contain the number of a revision."""

_READY = '.status.conditions[?(@.type=="Ready")].status'


def _name_rule(limit: int) -> dict[str, str]:
    return {
        "rule": f"self.metadata.name.size() <= {limit} && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "message": f"the name must start with a letter, contain only lower-case letters, digits and '-', and have at most {limit} "
        "characters; Services are named after it",
    }


_JOB_RULES = [
    {
        "rule": "!has(self.autoscaling.max) || self.autoscaling.max <= self.job.maxParallelism",
        "message": "autoscaling.max must not be greater than job.maxParallelism",
    },
    {
        "rule": "self.autoscaling.min <= self.job.maxParallelism",
        "message": "autoscaling.min must not be greater than job.maxParallelism",
    },
    {
        "rule": "self.job.parallelism == oldSelf.job.parallelism || [self, oldSelf].exists(spec, !has(spec.autoscaling) || "
        "!spec.autoscaling.enabled || spec.autoscaling.mode != 'active')",
        "message": "the autoscaler sets the parallelism, so no other client may change it; set autoscaling.enabled to false first",
    },
]
_CLUSTER_RULES = [
    {
        "rule": "self.worker.replicas == oldSelf.worker.replicas || [self, oldSelf].exists(spec, !has(spec.worker.autoscaling))",
        "message": "worker.autoscaling sets the number of workers, so no other client may change worker.replicas; remove worker.autoscaling first",
    },
]
_SNAPSHOT_RULES = [
    {"rule": "self == oldSelf", "message": "a FlinkSnapshot cannot be changed; create another"},
    {
        "rule": "has(self.savepoint) != has(self.checkpoint)",
        "message": "set exactly one of savepoint and checkpoint",
    },
]


def _column(name: str, path: str, kind: str = "string", *, wide: bool = False, about: str = "") -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path}
    if about:
        column["description"] = about
    if wide:
        column["priority"] = 1
    return column


def flinkjob() -> dict[str, Any]:
    """Return the CustomResourceDefinition of FlinkJob."""
    return _crd(
        kind="FlinkJob",
        plural="flinkjobs",
        short="fj",
        about="FlinkJob is a stateful streaming job in Python that runs on Spark.",
        spec=FlinkJobSpec,
        status=FlinkJobStatus,
        rules=[_name_rule(MAX_NAME)],
        spec_rules=_JOB_RULES,
        columns=[
            _column("State", ".status.phase", about="Phase of the job."),
            _column("Ready", _READY, about="Whether the job is in the state that its spec requests."),
            _column("Parallelism", ".status.parallelism", "integer"),
            _column("Checkpoint", ".status.lastCheckpoint.time", "date", about="Age of the newest checkpoint."),
            _column(
                "Restarts",
                ".status.restarts",
                "integer",
                about="Failovers of the running incarnation, and restarts of its containers.",
            ),
            _column("Age", ".metadata.creationTimestamp", "date"),
            _column(
                "Wanted", ".status.autoscaling.wanted", "integer", wide=True, about="Parallelism that the load needs."
            ),
            _column("Restored-From", ".status.running.restoredFrom.path", wide=True),
            _column("Image", ".status.running.image", wide=True),
            _column("Message", ".status.message", wide=True),
        ],
        scale={
            "specReplicasPath": ".spec.job.parallelism",
            "statusReplicasPath": ".status.parallelism",
            "labelSelectorPath": ".status.labelSelector",
        },
    )


def flinksnapshot() -> dict[str, Any]:
    """Return the CustomResourceDefinition of FlinkSnapshot."""
    return _crd(
        kind="FlinkSnapshot",
        plural="flinksnapshots",
        short="fsnap",
        about="FlinkSnapshot is one savepoint or checkpoint of a FlinkJob.",
        spec=FlinkSnapshotSpec,
        status=FlinkSnapshotStatus,
        rules=[],
        spec_rules=_SNAPSHOT_RULES,
        columns=[
            _column("Job", ".spec.jobRef.name"),
            _column("State", ".status.state"),
            _column("Completed", ".status.completedAt", "date", about="Age of the completed snapshot."),
            _column("Path", ".status.path"),
            _column("Age", ".metadata.creationTimestamp", "date"),
            _column("Failures", ".status.failures", "integer", wide=True),
            _column("Message", ".status.message", wide=True),
        ],
    )


def flinkcluster() -> dict[str, Any]:
    """Return the CustomResourceDefinition of FlinkCluster."""
    return _crd(
        kind="FlinkCluster",
        plural="flinkclusters",
        short="fc",
        about="FlinkCluster is a JobManager with workers that runs the programs of several FlinkJobs.",
        spec=FlinkClusterSpec,
        status=FlinkClusterStatus,
        rules=[_name_rule(MAX_CLUSTER_NAME)],
        spec_rules=_CLUSTER_RULES,
        columns=[
            _column("State", ".status.phase", about="Phase of the cluster."),
            _column("Ready", _READY, about="Whether master and workers run as the spec requests."),
            _column("Workers", ".status.workers", about="Ready and requested worker pods."),
            _column("Slots", ".status.slots", "integer"),
            _column("Free", ".status.freeSlots", "integer", about="Slots that no job uses."),
            _column("Jobs", ".status.jobs", "integer"),
            _column("Age", ".metadata.creationTimestamp", "date"),
            _column("Image", ".spec.image", wide=True),
            _column("Message", ".status.message", wide=True),
        ],
        scale={
            "specReplicasPath": ".spec.worker.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.labelSelector",
        },
    )


def all_crds() -> dict[str, dict[str, Any]]:
    """Return the CustomResourceDefinitions by file name."""
    return {f"{crd['metadata']['name']}.yaml": crd for crd in (flinkjob(), flinksnapshot(), flinkcluster())}


def _crd(
    *,
    kind: str,
    plural: str,
    short: str,
    about: str,
    spec: type[Api],
    status: type[Api],
    rules: list[dict[str, Any]],
    columns: list[dict[str, Any]],
    spec_rules: list[dict[str, Any]] | None = None,
    scale: dict[str, str] | None = None,
) -> dict[str, Any]:
    spec_schema = structural_schema(spec, defaults=True)
    if spec_rules:
        spec_schema["x-kubernetes-validations"] = [*spec_schema.get("x-kubernetes-validations", ()), *spec_rules]
    schema: dict[str, Any] = {
        "description": about,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec_schema,
            "status": structural_schema(status, defaults=False),
        },
    }
    if rules:
        schema["x-kubernetes-validations"] = rules
    subresources: dict[str, Any] = {"status": {}}
    if scale:
        subresources["scale"] = scale
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["streaming"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": columns,
                    "subresources": subresources,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
