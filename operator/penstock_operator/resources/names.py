"""Names, labels and annotations of everything that belongs to a FlinkJob: the one place where they are made."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from penstock_operator.api.version import API_VERSION, GROUP

MANAGER = "penstock-operator"

JOB = f"{GROUP}/job"
JOB_UID = f"{GROUP}/job-uid"
ROLE = f"{GROUP}/role"
INCARNATION = f"{GROUP}/incarnation"
STANDBY = f"{GROUP}/standby-beside"
"""On a Deployment whose new pods stand by: the incarnation that still runs in the old ones."""
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
"""What the job's own Secret holds."""

UID_SHOWN = 8
"""Characters of a FlinkJob's uid in the folder of its savepoints."""

CONF_DIR = "/etc/penstock"
WORK_DIR = "/var/lib/penstock"


def incarnation_prefix(namespace: str, name: str) -> str:
    """What the job ids of all incarnations of all FlinkJobs of one name begin with: their checkpoints are found by it.

    >>> incarnation_prefix("default", "weather")
    '1a5bbba81e62'
    """
    return hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()[:12]


def savepoint_folder(namespace: str, name: str, uid: str = "") -> str:
    """Where the savepoints of a FlinkJob lie below `storage.savepoints`; without a uid, how that begins for all of one name."""
    return f"{namespace}/{name}-{uid[:UID_SHOWN]}"


@dataclass(frozen=True)
class Owner:
    """The FlinkJob that objects are made for."""

    namespace: str
    name: str
    uid: str
    hold_uid: str | None = None
    """Of the hold, where there is one: the second owner of everything (`resources.hold`)."""

    @property
    def master(self) -> str:
        """Deployment and ServiceAccount of the master."""
        return f"{self.name}-master"

    def door(self, suffix: str = "") -> str:
        """Service by which workers find their master."""
        return f"{self.master}{suffix}"

    @property
    def worker(self) -> str:
        """Deployment and ServiceAccount of the workers."""
        return f"{self.name}-worker"

    @property
    def rest(self) -> str:
        """Service of the REST API."""
        return f"{self.name}-rest"

    def config(self, job_id: str, revision: str) -> str:
        """ConfigMap of one incarnation, which never changes."""
        return f"{self.name}-config-{hashlib.sha256(f'{job_id}/{revision}'.encode()).hexdigest()[:10]}"

    @property
    def former_config(self) -> str:
        """The one ConfigMap of a job that was started before each incarnation had its own."""
        return f"{self.name}-config"

    @property
    def parallelism(self) -> str:
        """ConfigMap with what a live rescale changes."""
        return f"{self.name}-parallelism"

    @property
    def secrets(self) -> str:
        """Secret with the REST token and Spark's secret."""
        return f"{self.name}-secrets"

    @property
    def hold(self) -> str:
        """ConfigMap that keeps everything until the savepoint of a deletion is taken."""
        return f"{self.name}-hold"

    def check(self, operation: str) -> str:
        """Pod that proves a revision."""
        return f"{self.name}-check-{operation}"

    def labels(self, role: str | None = None) -> dict[str, str]:
        """Labels of an object; `role` for what belongs to master or worker."""
        labels = {
            "app.kubernetes.io/name": "flinkjob",
            "app.kubernetes.io/instance": self.name,
            "app.kubernetes.io/managed-by": MANAGER,
            JOB: self.name,
            JOB_UID: self.uid,
        }
        if role is not None:
            labels |= {"app.kubernetes.io/component": role, ROLE: role}
        return labels

    def selector(self, role: str | None = None) -> dict[str, str]:
        """Labels that select this job's pods; no uid in them, since a Deployment's selector can never change."""
        return {JOB: self.name} | ({ROLE: role} if role else {})

    def metadata(self, name: str, role: str | None = None, **annotations: str) -> dict[str, Any]:
        """Metadata of a child."""
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
        """Make Kubernetes remove the child with the FlinkJob, or with the last of both where there is a hold."""
        job = {
            "apiVersion": API_VERSION,
            "kind": "FlinkJob",
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        held = {"apiVersion": "v1", "kind": "ConfigMap", "name": self.hold, "uid": self.hold_uid}
        return [job, held] if self.hold_uid else [job]
