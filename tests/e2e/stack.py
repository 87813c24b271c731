"""The environment of a FlinkJob: a cluster, an S3 server that pods reach, images, the operator from its chart."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.e2e import images
from tools.images import OPERATOR as OPERATOR_IMAGE
from tools.images import image_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.devcluster import Cluster
    from tools.servers.s3 import S3Server

RELEASE = "penstock"
SYSTEM = "penstock-system"
BUCKET = "e2e"
SECRET = "e2e-s3"
LEASE = "penstock-penstock-operator"
OPERATOR = "app.kubernetes.io/name=penstock-operator"
CHART = images.ROOT / "charts" / "penstock-operator"


@dataclass
class Stack:
    """The environment that all tests share."""

    cluster: Cluster
    s3: S3Server
    report: list[str] = field(default_factory=list)
    """The measurements, which are printed at the end."""

    def install(self, *more: str) -> None:
        """Install the operator from its chart with one replica, because a second one would only wait. `more` are options of helm."""
        self.cluster.helm(
            *("upgrade", "--install", RELEASE, str(CHART), "--namespace", SYSTEM, "--create-namespace"),
            *("--set", f"image.repository={OPERATOR_IMAGE.rpartition(':')[0]}"),
            *("--set", f"image.tag={OPERATOR_IMAGE.rpartition(':')[2]}"),
            *("--set", "replicas=1,podDisruptionBudget.enabled=false"),
            *("--set-string", f"podAnnotations.image={image_id(OPERATOR_IMAGE)}"),
            *("--wait", "--timeout", "3m"),
            *more,
        )

    def add_secret(self, namespace: str = "default") -> None:
        """Create the Secret for `storage.secretName`, with which pods and operator reach the S3 server."""
        values = {
            "AWS_ACCESS_KEY_ID": self.s3.access_key,
            "AWS_SECRET_ACCESS_KEY": self.s3.secret_key,
            "AWS_ENDPOINT_URL": self.s3.endpoint_url,
            "AWS_REGION": self.s3.credentials.region,
        }
        self.cluster.apply(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": SECRET, "namespace": namespace},
                    "stringData": values,
                }
            )
        )

    # --- the API ----------------------------------------------------------------------------------------------

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any] | None:
        """Return one object, or None if it does not exist."""
        printed = self.cluster.kubectl("get", kind, name, "-n", namespace, "--ignore-not-found", "-o", "json")
        found: dict[str, Any] | None = json.loads(printed) if printed.strip() else None
        return found

    def list(self, kind: str, selector: str = "", namespace: str = "default") -> list[dict[str, Any]]:
        """Return the objects with a label."""
        printed = self.cluster.kubectl("get", kind, "-n", namespace, "-l", selector, "-o", "json")
        items: list[dict[str, Any]] = json.loads(printed)["items"]
        return items

    # --- the operator -----------------------------------------------------------------------------------------

    def kill_operator(self, pod: str | None = None) -> None:
        """Kill one replica or all immediately, as if the node lost power. The Deployment creates another."""
        which = (pod,) if pod else ("-l", OPERATOR)
        self.cluster.kubectl("delete", "pod", "-n", SYSTEM, *which, "--grace-period=0", "--force", "--wait=false")

    def scale_operator(self, replicas: int) -> None:
        """Scale the operator. Return when the number of its pods matches."""
        found = self.list("deployments", OPERATOR, SYSTEM)[0]["metadata"]["name"]
        self.cluster.kubectl("scale", "deploy", found, "-n", SYSTEM, f"--replicas={replicas}")
        wait_until(lambda: len(self.list("pods", OPERATOR, SYSTEM)) == replicas, "the operator is scaled", seconds=90)

    def operators(self) -> set[str]:
        """Return the names of the operator's pods that are not being deleted."""
        pods = self.list("pods", OPERATOR, SYSTEM)
        return {p["metadata"]["name"] for p in pods if "deletionTimestamp" not in p["metadata"]}

    def leader(self) -> str:
        """Return the pod that holds the Lease, whether it is alive or not."""
        holder: str = (self.get("lease", LEASE, SYSTEM) or {}).get("spec", {}).get("holderIdentity", "")
        return holder

    def operator_log(self, lines: int = 60) -> str:
        return self.cluster.kubectl("logs", "-n", SYSTEM, "-l", OPERATOR, f"--tail={lines}")


def wait_until(condition: Callable[[], object], description: str | Callable[[], str], *, seconds: float) -> float:
    """Wait for a condition and return the seconds. Raise AssertionError with the awaited condition and the reason on a timeout."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            text = description if isinstance(description, str) else description()
            raise AssertionError(f"not within {seconds:.0f} s: {text}")
        time.sleep(0.4)
    return time.monotonic() - began
