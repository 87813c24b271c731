"""The fields of a FlinkJob that belong to the FlinkCluster that runs the job. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from penstock_operator.api.flinkjob import Master, NetworkPolicy, ServiceAccount, Worker
from penstock_operator.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock_operator.api.cluster_ref import ClusterRef
    from penstock_operator.api.flinkcluster import FlinkClusterSpec

_TAKEN = ("image", "imagePullPolicy", "imagePullSecrets", "storage", "podTemplate", "serviceAccount")
"""Fields of the FlinkCluster that are also fields of a FlinkJob."""
_TEMPLATES = (
    ("master", Master),
    ("worker", Worker),
    ("serviceAccount", ServiceAccount),
    ("networkPolicy", NetworkPolicy),
)
"""Fields with defaults in the CRD that belong to the FlinkCluster."""

CLUSTER_KEYS = (
    *("rest.", "security.", "jobmanager.", "taskmanager.", "spark.", "high-availability.", "io.tmp.dirs"),
    "execution.shutdown-on-application-finish",
)
"""First characters of the configuration keys that only the cluster can set."""


def refused_fields(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each field of a FlinkJob that belongs to its FlinkCluster, or that needs its own pods."""
    for name in ("image", "imagePullSecrets", "storage", "podTemplate", "ingress"):
        if raw.get(name):
            yield _belongs(name)
    if raw.get("imagePullPolicy", "IfNotPresent") != "IfNotPresent":
        yield _belongs("imagePullPolicy")
    for name, model in _TEMPLATES:
        try:
            is_default = model.model_validate(raw.get(name) or {}) == model()
        except ValidationError:
            is_default = False
        if not is_default:
            yield _belongs(name)
    for key in raw.get("configuration") or {}:
        if key.startswith(CLUSTER_KEYS):
            remedy = "Remove it here, and set it in spec.configuration of the FlinkCluster."
            yield Problem(f"spec.configuration[{key!r}]", "only the FlinkCluster can set this key", remedy)
    job: Mapping[str, Any] = raw.get("job") or {}
    source = job.get("source") or {}
    if source.get("image"):
        remedy = "Set source.url or source.git instead, or remove spec.cluster, so that the job has its own pods."
        text = "an image volume needs a new pod, and the pods of the FlinkCluster run already"
        yield Problem("spec.job.source.image", text, remedy)
    elif (
        job.get("script") is None
        and job.get("sql") is None
        and not any(source.get(kind) for kind in ("files", "configMap", "url", "git"))
    ):
        yield Problem(
            "spec.job",
            "a FlinkCluster runs only programs in job.script, job.sql or job.source",
            "Put the program into one of these fields, or remove spec.cluster and set spec.image.",
        )
    if ((raw.get("autoscaling") or {}).get("memory") or {}).get("mode") == "apply":
        remedy = "Remove it, and set spec.worker.resources of the FlinkCluster."
        yield Problem("spec.autoscaling.memory.mode", "the jobs of a FlinkCluster share its workers", remedy)
    if (raw.get("upgrade") or {}).get("warmStart"):
        remedy = "Remove it. The pods of a FlinkCluster run already."
        yield Problem("spec.upgrade.warmStart", "a job of a FlinkCluster has no pods to start", remedy)


def _belongs(field: str) -> Problem:
    remedy = f"Remove it here, and set spec.{field} of the FlinkCluster."
    return Problem(f"spec.{field}", "this field belongs to the FlinkCluster that runs the job", remedy)


def merged(raw: Mapping[str, Any], ref: ClusterRef, cluster: FlinkClusterSpec) -> dict[str, Any]:
    """Return the spec of a job in this revision of a FlinkCluster."""
    fields = cluster.to_manifest()
    out = {**raw, "cluster": str(ref), **{name: fields[name] for name in _TAKEN if name in fields}}
    out["master"] = {name: value for name, value in fields["master"].items() if name != "replicas"}
    out["configuration"] = {**fields["configuration"], **(raw.get("configuration") or {})}
    return out


def checked_alone(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a job for a check without the FlinkCluster, with placeholders for the fields of the FlinkCluster."""
    nowhere = {"checkpoints": "s3://bucket/checkpoints", "savepoints": "s3://bucket/savepoints"}
    return {**raw, "image": "none", "storage": nowhere}
