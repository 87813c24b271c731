"""The subset of the Kubernetes API that the operator uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock_operator.api.version import API_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

Manifest = dict[str, Any]
"""A Kubernetes object as JSON."""


@dataclass(frozen=True)
class Kind:
    """A kind and its path in the API."""

    api_version: str
    name: str
    plural: str

    def path(self, namespace: str | None, name: str = "") -> str:
        """Return the URL path of the collection, or of one object."""
        root = f"/api/{self.api_version}" if "/" not in self.api_version else f"/apis/{self.api_version}"
        scope = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{scope}/{self.plural}" + (f"/{name}" if name else "")


FLINKJOB = Kind(API_VERSION, "FlinkJob", "flinkjobs")
FLINKSNAPSHOT = Kind(API_VERSION, "FlinkSnapshot", "flinksnapshots")
FLINKCLUSTER = Kind(API_VERSION, "FlinkCluster", "flinkclusters")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
REVISION = Kind("apps/v1", "ControllerRevision", "controllerrevisions")
NAMESPACE = Kind("v1", "Namespace", "namespaces")
POD = Kind("v1", "Pod", "pods")
SERVICE = Kind("v1", "Service", "services")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
SECRET = Kind("v1", "Secret", "secrets")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
EVENT = Kind("v1", "Event", "events")
BUDGET = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
INGRESS = Kind("networking.k8s.io/v1", "Ingress", "ingresses")
POD_MONITOR = Kind("monitoring.coreos.com/v1", "PodMonitor", "podmonitors")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        FLINKJOB,
        FLINKSNAPSHOT,
        FLINKCLUSTER,
        DEPLOYMENT,
        REVISION,
        POD,
        SERVICE,
        CONFIG_MAP,
        SECRET,
        SERVICE_ACCOUNT,
        EVENT,
        BUDGET,
        NETWORK_POLICY,
        INGRESS,
        POD_MONITOR,
        LEASE,
    )
}
"""Kinds by name."""


class Cluster(Protocol):
    """The Kubernetes API. Every method raises a `KubeError` if the server refuses the request or does not respond."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """Return the current object, or None if it does not exist."""

    async def list(self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | str = "") -> list[Manifest]:
        """Return all objects that have these labels or match this label selector. A namespace of None stands for all
        namespaces.
        """

    async def create(self, manifest: Manifest) -> Manifest:
        """Create an object. Raise `AlreadyExists` if it exists."""

    async def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Apply the manifest with server-side apply, which only changes the fields in it. `dry_run` only checks that
        the server accepts it.
        """

    async def replace(self, manifest: Manifest, *, subresource: str = "") -> Manifest:
        """Replace the whole object. Raise `Conflict` if its resourceVersion is not current."""

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Manifest) -> Manifest | None:
        """Apply a JSON merge patch. Return None if the object does not exist."""

    async def delete(
        self, kind: Kind, namespace: str, name: str, *, force: bool = False, seen: Manifest | None = None
    ) -> None:
        """Request the deletion of an object. Do nothing if it does not exist.

        Args:
            force: delete a pod without waiting until its node reports that it has ended.
            seen: delete only this version of this object. Raise `Conflict` if it has changed, or if another object has its name.
        """

    async def log(self, namespace: str, pod: str, container: str, limit: int) -> str | None:
        """Return the end of a container's log, or None if it is not available, for example because the node does not
        respond.
        """


def kind_of(manifest: Manifest) -> Kind:
    """Return the kind of a manifest."""
    return KINDS[manifest["kind"]]
