"""What the operator needs of the Kubernetes API, and nothing more."""

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
    """Where objects of a kind live in the API."""

    api_version: str
    name: str
    plural: str

    def path(self, namespace: str | None, name: str = "") -> str:
        """URL path of the collection, or of one object."""
        root = f"/api/{self.api_version}" if "/" not in self.api_version else f"/apis/{self.api_version}"
        scope = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{scope}/{self.plural}" + (f"/{name}" if name else "")


FLINKJOB = Kind(API_VERSION, "FlinkJob", "flinkjobs")
FLINKSNAPSHOT = Kind(API_VERSION, "FlinkSnapshot", "flinksnapshots")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
REVISION = Kind("apps/v1", "ControllerRevision", "controllerrevisions")
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
"""Name of a kind → the kind."""


class Cluster(Protocol):
    """The Kubernetes API. Every method raises a `KubeError` if the server refuses or does not answer."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """The object as it is now, or None."""

    async def list(self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | str = "") -> list[Manifest]:
        """All objects with these labels, or that a label selector selects; of all namespaces if None."""

    async def create(self, manifest: Manifest) -> Manifest:
        """Create; `AlreadyExists` if it is there."""

    async def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Server-side apply: the named fields become so, everything else stays. `dry_run`: only whether it would be taken."""

    async def replace(self, manifest: Manifest, *, subresource: str = "") -> Manifest:
        """Put the object as given; `Conflict` if its resourceVersion is not the current one."""

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Manifest) -> Manifest | None:
        """JSON merge patch; None if the object is gone."""

    async def delete(
        self, kind: Kind, namespace: str, name: str, *, force: bool = False, seen: Manifest | None = None
    ) -> None:
        """Ask for deletion; an absent object is fine. `force`: do not wait for a node to say that a pod has ended.

        `seen`: only the object as it is given; `Conflict` if it has changed since, or another one has its name.
        """

    async def log(self, namespace: str, pod: str, container: str, limit: int) -> str | None:
        """The last bytes of a container's log; None if it cannot be had (its node does not answer, say)."""


def kind_of(manifest: Manifest) -> Kind:
    """The kind of a manifest."""
    return KINDS[manifest["kind"]]
