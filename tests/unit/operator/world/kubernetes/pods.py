"""The visible state of a pod: whether its container runs, and the status that the kubelet writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock_operator.api.pod_template import MAIN_CONTAINER
from penstock_operator.reconcile.observe.manifests import labels_of
from penstock_operator.resources.names import ROLE

if TYPE_CHECKING:
    from penstock_operator.kube.cluster import Manifest
    from tests.unit.operator.world.kubernetes.images import Image


def drops(pod: Manifest, image: Image) -> bool:
    """Return whether the engine refuses the start because it would drop state without permission."""
    args = pod["spec"]["containers"][0]["args"]
    restores = "--restore" in args or "--against" in args
    return bool(image.without) and restores and image.without not in args


def is_up(pod: Manifest) -> bool:
    """Return whether its container runs."""
    states = [c["state"] for c in pod["status"].get("containerStatuses", ())]
    return pod["status"].get("phase") == "Running" and all("running" in state for state in states)


def role_of(manifest: Manifest) -> str:
    """Return the role, master or worker."""
    return str(labels_of(manifest)[ROLE])


def is_rolling(deployment: Manifest) -> bool:
    """Return whether its new pods run beside the old ones."""
    return bool(deployment["spec"].get("strategy", {}).get("type") == "RollingUpdate")


def running_status(pod: Manifest, *, ready: bool) -> dict[str, Any]:
    own = {"name": MAIN_CONTAINER, "restartCount": pod["status"].get("x-restarts", 0), "state": {"running": {}}}
    for before in pod["status"].get("containerStatuses", ()):
        own |= {"lastState": before.get("lastState", {})}
    return {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        "containerStatuses": [own],
        "x-restarts": pod["status"].get("x-restarts", 0),
    }


def waiting_status(reason: str, message: str, image: str) -> dict[str, Any]:
    waiting = {"waiting": {"reason": reason, "message": message}}
    own = {"name": MAIN_CONTAINER, "image": image, "restartCount": 0, "state": waiting}
    return {"phase": "Pending", "containerStatuses": [own]}
