"""The objects of a FlinkCluster. A FlinkJob has the same objects, but its master runs a program.

Each version of the spec that needs new pods is a *revision* with a number, which is part of the names of its objects.
So the pods of two revisions run side by side while an upgrade moves the jobs. The objects belong to a
ControllerRevision. The operator deletes the ControllerRevision of a former revision, and Kubernetes then deletes the
objects.

The ControllerRevision itself has no owner. In a foreground deletion of the FlinkCluster, Kubernetes would otherwise
delete all pods at once, although jobs still run in them. The operator deletes it in any case, because the FlinkCluster
has the operator's finalizer.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from penstock_operator.api.flinkjob import FlinkJobSpec
from penstock_operator.api.status.snapshots import Restore
from penstock_operator.resources import children
from penstock_operator.resources.configuration import config_map
from penstock_operator.resources.deployments import session_deployment, worker_deployment
from penstock_operator.resources.incarnation import SERVICE_SUFFIXES, Incarnation
from penstock_operator.resources.names import CLUSTER, MANAGER

if TYPE_CHECKING:
    from datetime import timedelta

    from penstock_operator.api.flinkcluster import FlinkClusterSpec
    from penstock_operator.resources.children import OperatorIdentity
    from penstock_operator.resources.names import Owner

STORAGE_KEY = "high-availability.storageDir"
"""Configuration key with the folder of the programs of a session."""
_AROUND = ("deletion", "jobs", "ingress", "networkPolicy")
"""Fields from which no pod is created."""


def revision_name(cluster: str, number: int) -> str:
    """Return the name of a revision. Its ControllerRevision has this name, and the names of its objects start with it."""
    return f"{cluster}-{number}"


def revision_digest(spec: FlinkClusterSpec) -> str:
    """Return a hash of the fields from which the pods are created. Fields with their default value do not count."""
    fields = spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    fields = {key: value for key, value in fields.items() if key not in _AROUND}
    for part, key in (("worker", "replicas"), ("worker", "autoscaling"), ("serviceAccount", "annotations")):
        fields[part] = {name: value for name, value in fields.get(part, {}).items() if name != key}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:10]


def as_job(spec: FlinkClusterSpec, programs: str = "") -> FlinkJobSpec:
    """Return the spec of a FlinkJob with the same pods.

    Args:
        programs: folder of the programs. Empty means that the cluster stores none.
    """
    kept = spec.fields_of_a_job()
    storage = {STORAGE_KEY: programs} if programs else {}
    configuration = {**spec.configuration, **storage}
    return FlinkJobSpec.model_validate({**kept, "configuration": configuration, "job": {"entry": "session"}})


def programs_folder(namespace: str, name: str, uid: str, number: int, spec: FlinkClusterSpec) -> str:
    """Return the folder of the programs of a revision. Two sessions never have the same folder, because a session runs
    every program that it finds.
    """
    return f"{spec.storage.checkpoints}/clusters/{namespace}/{name}-{uid[:8]}/{number}"


def controller_revision(
    namespace: str, cluster: str, uid: str, number: int, spec: FlinkClusterSpec, generation: int
) -> dict[str, Any]:
    """Return the ControllerRevision of a revision."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": revision_name(cluster, number),
            "namespace": namespace,
            "labels": {CLUSTER: cluster, "app.kubernetes.io/managed-by": MANAGER},
        },
        "data": {"spec": spec.to_manifest(), "cluster": {"uid": uid, "number": number}},
        "revision": generation,
    }


def incarnation(spec: FlinkJobSpec, number: int) -> Incarnation:
    """Return the input of the pods of a revision. A session restores no state, and `parallelism` has no meaning."""
    restore = Restore(kind="Fresh", reason="a session has no state")
    return Incarnation(
        str(number), spec, str(number), restore, spec.worker.replicas or 1, service_suffix=SERVICE_SUFFIXES[0]
    )


def around(owner: Owner, spec: FlinkJobSpec, identity: OperatorIdentity, number: int) -> list[dict[str, Any]]:
    """Return all objects of a revision except its Secret and its Deployments, in the order in which the operator applies
    them.
    """
    new = incarnation(spec, number)
    return [config_map(owner, new), *children.children(owner, spec, identity, new)]


def deployments(
    owner: Owner, spec: FlinkJobSpec, number: int, workers: int, lost_node: timedelta
) -> list[dict[str, Any]]:
    """Return the Deployments of the workers and of the master."""
    new = incarnation(spec, number)
    return [worker_deployment(owner, new, workers, lost_node), session_deployment(owner, new, lost_node)]
