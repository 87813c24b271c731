"""Names, labels and annotations of all objects of a FlinkJob. No other module creates them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from penstock_operator.api.version import API_VERSION, GROUP

MANAGER = "penstock-operator"

JOB = f"{GROUP}/job"
JOB_UID = f"{GROUP}/job-uid"
ROLE = f"{GROUP}/role"
INCARNATION = f"{GROUP}/incarnation"
CLUSTER = f"{GROUP}/cluster"
"""Label with the name of the FlinkCluster of an object."""
CLUSTER_REVISION = f"{GROUP}/cluster-revision"
"""Label with the name of the FlinkCluster's revision that an object belongs to."""
STANDBY = f"{GROUP}/standby-beside"
"""Annotation of a Deployment whose new pods are on standby. Its value is the incarnation that still runs in the old
pods.
"""
REVISION = f"{GROUP}/revision"
APPLIED = f"{GROUP}/applied"
OPERATION = f"{GROUP}/operation"
CONFIG = f"{GROUP}/config"
TRIGGER = f"{GROUP}/trigger"
SNAPSHOT_TYPE = f"{GROUP}/snapshot-type"
FINALIZER = f"{GROUP}/finalizer"

REST_PORT = 8081
MASTER_PORT = 7077
DRIVER_PORT = 7078
BLOCKS_PORT = 7079
HEALTH_PORT = 8082

SECRET_KEYS = ("rest-token", "spark-secret")
"""Keys of the Secret that the operator creates for a job."""

UID_SHOWN = 8
"""Number of characters of a FlinkJob's uid in the folder of its savepoints."""

_SAVEPOINT_DEPTH = 5
"""Minimum number of path segments of a savepoint after the scheme: bucket, namespace, FlinkJob, attempt, savepoint."""

CONF_DIR = "/etc/penstock"
TLS_FOLDER = "tls"
"""Folder with the certificate and its key, below `CONF_DIR`."""
TLS_KEYS = ("tls.crt", "tls.key")
"""Keys of a Secret with a certificate, with the names that Kubernetes and cert-manager use."""
CA_KEY = "ca.crt"
"""Key of the CA that signed the certificate. cert-manager writes it. Without this key, clients use the CAs of the
system.
"""
WORK_DIR = "/var/lib/penstock"


def incarnation_prefix(namespace: str, name: str) -> str:
    """Return the common prefix of the job ids of all incarnations of all FlinkJobs with this name. The operator
    finds their checkpoints by this prefix.

    >>> incarnation_prefix("default", "weather")
    '1a5bbba81e62'
    """
    return hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()[:12]


def is_incarnation_of(namespace: str, name: str, job_id: str) -> bool:
    """Return whether the operator could have created this job id for a FlinkJob of this name.

    The operator only deletes or fences the folders of such job ids.

    >>> is_incarnation_of("default", "weather", "1a5bbba81e62cf61527b79bebc7ea6ff")
    True
    >>> is_incarnation_of("default", "weather", "1a5bbba81e62/../production")
    False
    """
    return re.fullmatch(rf"{incarnation_prefix(namespace, name)}[0-9a-f]{{20}}", job_id) is not None


def savepoint_folder(namespace: str, name: str, uid: str = "") -> str:
    """Return the folder of a FlinkJob's savepoints below `storage.savepoints`. Without a uid, return the prefix that
    all FlinkJobs of this name have in common.
    """
    return f"{namespace}/{name}-{uid[:UID_SHOWN]}"


def snapshot_folder(namespace: str, job: str, job_uid: str, name: str, uid: str, attempt: int) -> str:
    """Return the folder of one attempt of a FlinkSnapshot below `storage.savepoints`.

    The folder contains the object's uid. So a new object with the name of an earlier object does not find the files of
    the earlier object.

    >>> snapshot_folder("default", "weather", "0a1b2c3d-4", "nightly", "9f8e7d6c-5", 1)
    'default/weather-0a1b2c3d/nightly-9f8e7d6c-1'
    """
    return f"{savepoint_folder(namespace, job, job_uid)}/{name}-{uid[:UID_SHOWN]}-{attempt}"


def is_below(folder: str | None, path: str) -> bool:
    """Return whether a path is inside a folder and does not leave it through `..`.

    >>> is_below("s3://b/sp/op-1", "s3://b/sp/op-1/savepoint-a"), is_below("s3://b/sp/op-1", "s3://b/sp/op-1/../op-2")
    (True, False)
    """
    return bool(folder) and path.startswith(f"{folder}/") and not {".", ".."} & set(path.split("/"))


def is_savepoint_of(namespace: str, job: str, path: str) -> bool:
    """Return whether a path is a savepoint in a folder that the operator has chosen for FlinkJobs of this name.

    >>> is_savepoint_of("default", "weather", "s3://b/sp/default/weather-0a1b2c3d/op-1/savepoint-aaa-bbb")
    True
    >>> is_savepoint_of("default", "weather", "s3://b/sp/default/weather-0a1b2c3d/../../prod/sales-1/op-1/savepoint-a")
    False
    """
    scheme, _, rest = path.partition("://")
    parts = rest.split("/")
    if not scheme or len(parts) < _SAVEPOINT_DEPTH or any(part in (".", "..") for part in parts) or "" in parts[1:]:
        return False
    in_namespace, owner, _, savepoint_name = parts[-4:]
    start = savepoint_folder("", job).removeprefix("/")
    named = owner.startswith(start) and len(owner) <= len(start) + UID_SHOWN
    return in_namespace == namespace and named and savepoint_name.startswith("savepoint-")


@dataclass(frozen=True)
class Owner:
    """The FlinkJob that owns the created objects, or the revision of a FlinkCluster that owns them."""

    namespace: str
    name: str
    uid: str
    hold_uid: str | None = None
    """uid of the hold, if it exists. The hold is the second owner of all objects (`resources.hold`)."""
    cluster: str = ""
    """Name of the FlinkCluster, if the objects belong to a revision of one. `name` is then the name of the revision, and
    `uid` that of its ControllerRevision.
    """

    @property
    def master(self) -> str:
        """Name of the master's Deployment and ServiceAccount."""
        return f"{self.name}-master"

    def master_service(self, suffix: str = "") -> str:
        """Return the name of the Service through which workers find their master."""
        return f"{self.master}{suffix}"

    @property
    def worker(self) -> str:
        """Name of the workers' Deployment and ServiceAccount."""
        return f"{self.name}-worker"

    @property
    def rest(self) -> str:
        """Name of the Service of the REST API."""
        return f"{self.name}-rest"

    def config(self, job_id: str, revision: str) -> str:
        """Return the name of the ConfigMap of one incarnation. The content of this ConfigMap never changes."""
        return f"{self.name}-config-{hashlib.sha256(f'{job_id}/{revision}'.encode()).hexdigest()[:10]}"

    @property
    def former_config(self) -> str:
        """Name of the only ConfigMap of a job that was started before each incarnation had its own ConfigMap."""
        return f"{self.name}-config"

    @property
    def parallelism(self) -> str:
        """Name of the ConfigMap with the value that a live rescale changes."""
        return f"{self.name}-parallelism"

    @property
    def secrets(self) -> str:
        """Name of the Secret with the REST token and Spark's secret."""
        return f"{self.name}-secrets"

    @property
    def hold(self) -> str:
        """Name of the ConfigMap that keeps all objects until the savepoint of a deletion is taken."""
        return f"{self.name}-hold"

    def check(self, operation: str) -> str:
        """Return the name of the pod that checks a revision."""
        return f"{self.name}-check-{operation}"

    def labels(self, role: str | None = None) -> dict[str, str]:
        """Return the labels of an object. `role` is the role of an object that belongs to the master or the workers."""
        labels = {
            "app.kubernetes.io/name": "flinkcluster" if self.cluster else "flinkjob",
            "app.kubernetes.io/instance": self.cluster or self.name,
            "app.kubernetes.io/managed-by": MANAGER,
            **self.selector(),
            **({} if self.cluster else {JOB_UID: self.uid}),
        }
        if role is not None:
            labels |= {"app.kubernetes.io/component": role, ROLE: role}
        return labels

    def selector(self, role: str | None = None) -> dict[str, str]:
        """Return the labels that select the job's pods. They have no uid, because the selector of a Deployment cannot
        be changed.
        """
        mine = {CLUSTER: self.cluster, CLUSTER_REVISION: self.name} if self.cluster else {JOB: self.name}
        return mine | ({ROLE: role} if role else {})

    def metadata(self, name: str, role: str | None = None, **annotations: str) -> dict[str, Any]:
        """Return the metadata of a child object."""
        meta: dict[str, Any] = {
            "name": name,
            "namespace": self.namespace,
            "labels": self.labels(role),
            "ownerReferences": self.references(),
        }
        if annotations:
            meta["annotations"] = annotations
        return meta

    def references(self) -> list[dict[str, Any]]:
        """Return the owner references of a child object. Kubernetes deletes the child with its last owner: the
        FlinkJob, or the hold. An object of a FlinkCluster has only the ControllerRevision as its owner.
        """
        job = {
            "apiVersion": "apps/v1" if self.cluster else API_VERSION,
            "kind": "ControllerRevision" if self.cluster else "FlinkJob",
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "name": self.hold, "uid": self.hold_uid}
        return [job, config_map] if self.hold_uid else [job]
