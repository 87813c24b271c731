"""Access to Secrets by name, and the owner of the REST API of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock_operator.api.cluster_ref import ClusterRef
from penstock_operator.engine.client import MasterTls
from penstock_operator.kube.cluster import SECRET
from penstock_operator.resources.named_secrets import secret_texts
from penstock_operator.resources.names import CA_KEY, Owner

if TYPE_CHECKING:
    from penstock_operator.reconcile.ports import Ports


class ServedMaster(Protocol):
    """A master with a REST API. `cluster` is the revision of a FlinkCluster, and None for a FlinkJob with its own pods."""

    @property
    def cluster(self) -> str | None: ...
    @property
    def rest_tls(self) -> str: ...


@dataclass(frozen=True)
class Address:
    """The session of a FlinkCluster's revision."""

    cluster: str | None
    rest_tls: str = ""


def master_of(namespace: str, name: str, running: ServedMaster | None) -> Owner:
    """Return the owner of the REST Service and of the token of a job's master. It is the FlinkJob, or the revision of
    the FlinkCluster in which the job runs.
    """
    ref = ClusterRef.parse(running.cluster) if running is not None else None
    if ref is None:
        return Owner(namespace, name, "")
    return Owner(ref.namespace, ref.revision, "", cluster=ref.name)


async def read_master_tls(ports: Ports, namespace: str, running: ServedMaster) -> MasterTls | None:
    """Return the TLS settings for the master of an incarnation, or None for plain HTTP.

    Take the settings from the status, because the spec may already contain other settings.
    """
    if not running.rest_tls:
        return None
    return MasterTls((await read_secret(ports, namespace, running.rest_tls)).get(CA_KEY, ""))


async def read_secret(ports: Ports, namespace: str, name: str) -> dict[str, str]:
    """Return the content of a Secret, or an empty dict if it does not exist. Skip values that are not text, for
    example a keystore.
    """
    return secret_texts(await ports.cluster.get(SECRET, namespace, name))
