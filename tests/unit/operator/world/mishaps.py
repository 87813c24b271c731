"""What befalls pods: their processes are killed, their nodes are lost, the kubelet puts them out."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock_operator.api.pod_template import MAIN_CONTAINER
from penstock_operator.api.types import format_time
from penstock_operator.resources.names import JOB, ROLE
from tests.unit.operator.world.pods import is_up

if TYPE_CHECKING:
    from datetime import datetime

    from penstock_operator.kube.cluster import Manifest
    from tests.unit.operator.world.cluster import FakeCluster
    from tests.unit.operator.world.engine import FakeJob

NAME = "weather"
RESTART_PAUSE = timedelta(seconds=3)
"""After that the kubelet starts a container again."""


class Mishaps:
    """The part of a world in which things go wrong."""

    cluster: FakeCluster
    jobs: dict[str, FakeJob]
    """By uid of the master's pod."""
    standing_by: dict[str, int]
    time: datetime
    crashes: int

    def crash_master(self, name: str = NAME) -> None:
        """The master's process ends; its container is started again."""
        self.crashes += 1
        for pod in self.cluster.select("Pod", None, {JOB: name, ROLE: "master"}):
            self.jobs.pop(pod["metadata"]["uid"], None)
            self.standing_by.pop(pod["metadata"]["uid"], None)

    def lose_node(self, role: str = "master", name: str = NAME) -> None:
        """The node of a pod does not answer any more; what runs on it goes on, unseen."""
        for pod in self.cluster.select("Pod", None, {JOB: name, ROLE: role}):
            unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
            lost = {**pod["status"], "conditions": [unknown]}
            self.cluster.edit(
                "Pod", "default", pod["metadata"]["name"], lambda m, s=lost: m.update({"x-lost": True, "status": s})
            )

    def kill_pod(self, role: str, name: str = NAME) -> None:
        """The pod is gone at once."""
        pod = self.cluster.select("Pod", None, {JOB: name, ROLE: role})[0]
        self.jobs.pop(pod["metadata"]["uid"], None)
        self.cluster.drop("Pod", "default", pod["metadata"]["name"])

    def kill_container(self, role: str, reason: str = "OOMKilled", name: str = NAME) -> bool:
        """The kernel kills the container of a pod, and the kubelet starts it again a moment later; False: none is up."""
        pods = [p for p in self.cluster.select("Pod", None, {JOB: name, ROLE: role}) if is_up(p)]
        if not pods or "deletionTimestamp" in pods[0]["metadata"]:
            return False
        pod, restarts = pods[0], pods[0]["status"].get("x-restarts", 0) + 1
        ended = {"exitCode": 137, "reason": reason, "finishedAt": format_time(self.time)}
        own = {
            "name": MAIN_CONTAINER,
            "restartCount": restarts,
            "state": {"waiting": {"reason": "PodInitializing"}},
            "lastState": {"terminated": ended},
        }
        self.jobs.pop(pod["metadata"]["uid"], None)
        status = {**pod["status"], "conditions": [], "containerStatuses": [own], "x-restarts": restarts}
        self._set(pod, {**status, "x-up-at": (self.time + RESTART_PAUSE).isoformat()})
        return True

    def evict(self, role: str, name: str = NAME) -> None:
        """The kubelet ends a pod, which stays as a record of that."""
        pod = self.cluster.select("Pod", None, {JOB: name, ROLE: role})[0]
        self.jobs.pop(pod["metadata"]["uid"], None)
        ended = {"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": format_time(self.time)}}
        own = {"name": MAIN_CONTAINER, "restartCount": 0, "state": ended}
        text = f"The node was low on resource: memory. Container {MAIN_CONTAINER} was using 700Mi, request is 0."
        failed = {"phase": "Failed", "reason": "Evicted", "message": text, "podIP": "10.0.0.1"}
        self._set(pod, {**failed, "containerStatuses": [own]})

    def end_pod(self, role: str, reason: str, message: str, name: str = NAME) -> None:
        """The kubelet ends a pod for a reason of its own; of a container that it never started it knows nothing."""
        for pod in self.cluster.select("Pod", None, {JOB: name, ROLE: role}):
            ended = {"exitCode": 137, "reason": "ContainerStatusUnknown"}
            if pod["status"].get("phase") == "Running":
                ended = {"exitCode": 137, "reason": "Error"}
            statuses = [{"name": MAIN_CONTAINER, "restartCount": 0, "state": {"terminated": ended}}]
            failed = {"phase": "Failed", "reason": reason, "message": message, "containerStatuses": statuses}
            self._set(pod, failed)

    def _set(self, pod: Manifest, status: dict[str, Any]) -> None:
        if pod["status"] != status:
            self.cluster.edit("Pod", "default", pod["metadata"]["name"], lambda m: m.update(status=status))
