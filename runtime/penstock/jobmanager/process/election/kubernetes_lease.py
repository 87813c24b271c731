"""Claims in a Lease of Kubernetes (`coordination.k8s.io/v1`), with the ServiceAccount of the pod.

Every change names the version of the Lease that it is based on. So the API server refuses the change of a process that has not seen the newest
version. The term is `leaseTransitions`. The addresses and the heartbeat are an annotation.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec

from penstock.common.errors import ClusterError, StorageError
from penstock.jobmanager.process.election.claims import Holder

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder in which Kubernetes mounts the token of the pod's ServiceAccount."""
HOLDER = "penstock.io/holder"
"""Annotation with the record of the holder."""
_API = "/apis/coordination.k8s.io/v1/namespaces"
_TIMEOUT_S = 2.0
_LOST = (404, 409)
"""Status codes of a change that is based on an old version, or of a Lease that was deleted."""


class KubernetesLease:
    """Claims in the Lease `name`.

    Args:
        client: client of the API server.
        token: file with the token, which is read for each request, because Kubernetes renews it.
        duration_s: lease duration in seconds, for people who read the Lease.
    """

    def __init__(
        self, client: httpx.Client, namespace: str, name: str, token: Path | None, duration_s: float = 5.0
    ) -> None:
        self._client = client
        self._folder = f"{_API}/{namespace}/leases"
        self._namespace, self._name = namespace, name
        self._token = token
        self._duration_s = max(1, round(duration_s))
        self._version = ""
        """Version of the Lease that this process has seen last."""

    @classmethod
    def in_cluster(
        cls, name: str, namespace: str | None, duration_s: float, account: Path = ACCOUNT
    ) -> KubernetesLease:
        """Return the Lease in the cluster of this pod.

        Raises:
            ClusterError: this process does not run in a pod with a token of a ServiceAccount.
        """
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not (account / "token").is_file():
            missing = f"{account}/token does not exist" if host else "KUBERNETES_SERVICE_HOST is not set"
            raise ClusterError(
                f"high-availability.type is kubernetes, but this process has no access to Kubernetes: {missing}",
                remedy="mount the token of a ServiceAccount that may get, create and update Leases, or set "
                "high-availability.type to file",
            )
        namespace = namespace or (account / "namespace").read_text().strip()
        base = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        client = httpx.Client(base_url=base, verify=_ca(account), timeout=_TIMEOUT_S)
        return cls(client, namespace, name, account / "token", duration_s)

    def current(self) -> Holder | None:
        answer = self._send("GET", f"{self._folder}/{self._name}")
        if answer.status_code == 404:
            self._version = ""
            return None
        lease = self._checked(answer)
        self._version = lease["metadata"]["resourceVersion"]
        return _holder(lease)

    def claim(self, candidate: Holder, over: Holder | None) -> bool:
        now = _now()
        lease = self._manifest(candidate, acquired=now, renewed=now)
        if self._version:
            answer = self._send("PUT", f"{self._folder}/{self._name}", lease)
        else:
            answer = self._send("POST", self._folder, lease)
        return self._is_stored(answer)

    def renew(self, holder: Holder) -> bool:
        """Store the heartbeat. If the Lease has changed, read it: a person or a tool may have changed a label."""
        for _ in range(2):
            if self._is_stored(
                self._send("PUT", f"{self._folder}/{self._name}", self._manifest(holder, renewed=_now()))
            ):
                return True
            now = self.current()
            if now is not None and (now.id, now.term) != (holder.id, holder.term):
                return False
            if now is None and self.claim(holder, None):  # a person has deleted the Lease
                return True
        return False

    def release(self, holder: Holder) -> None:
        self.renew(msgspec.structs.replace(holder, released=True))

    def _is_stored(self, answer: httpx.Response) -> bool:
        if answer.status_code in _LOST:
            return False
        self._version = self._checked(answer)["metadata"]["resourceVersion"]
        return True

    def _manifest(self, holder: Holder, *, renewed: str, acquired: str = "") -> dict[str, Any]:
        version = {"resourceVersion": self._version} if self._version else {}
        annotations = {HOLDER: msgspec.json.encode(holder).decode()}
        spec: dict[str, Any] = {
            "holderIdentity": "" if holder.released else holder.id,
            "leaseDurationSeconds": self._duration_s,
            "leaseTransitions": holder.term,
            "renewTime": renewed,
        }
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace, "annotations": annotations, **version},
            "spec": {**spec, **({"acquireTime": acquired} if acquired else {})},
        }

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token.read_text().strip()}"}
        try:
            return self._client.request(method, path, json=body, headers=headers)
        except (httpx.HTTPError, OSError) as error:
            raise StorageError(
                f"the Kubernetes API does not respond ({method} Lease {self._namespace}/{self._name}): {error}",
                remedy="no action is needed if the API server restarts. Otherwise check the NetworkPolicy of the pods",
            ) from error

    def _checked(self, answer: httpx.Response) -> dict[str, Any]:
        if answer.is_success:
            found: dict[str, Any] = answer.json()
            return found
        raise StorageError(
            f"the Kubernetes API refused the Lease {self._namespace}/{self._name} with {answer.status_code}: {answer.text[:200]}",
            remedy="the ServiceAccount of the pod must be allowed to get, create and update this Lease",
        )


def _holder(lease: dict[str, Any]) -> Holder:
    """Return the holder of a Lease. A Lease that another tool wrote has a holder without addresses."""
    spec = lease.get("spec") or {}
    note = (lease["metadata"].get("annotations") or {}).get(HOLDER, "")
    try:
        return msgspec.json.decode(note, type=Holder)
    except msgspec.MsgspecError:
        identity = str(spec.get("holderIdentity") or "")
        return Holder(identity, int(spec.get("leaseTransitions") or 0), released=not identity)


def _ca(account: Path) -> Any:
    import ssl

    return ssl.create_default_context(cafile=str(account / "ca.crt"))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
