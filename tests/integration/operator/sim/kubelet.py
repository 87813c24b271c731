"""A simulated kubelet, which writes the status of pods: scheduled, running, ready, ended, gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock_operator.errors import KubeError
from penstock_operator.kube.cluster import CONFIG_MAP, POD
from penstock_operator.reconcile.observe.manifests import labels_of
from penstock_operator.resources.deployments import CHECK_VARIABLE
from penstock_operator.resources.names import JOB, ROLE

if TYPE_CHECKING:
    from penstock_operator.kube.cluster import Manifest
    from penstock_operator.kube.http import HttpCluster
    from tests.integration.operator.sim.masters import Masters


@dataclass
class Kubelet:
    """A simulated kubelet for the pods of FlinkJobs in one namespace."""

    cluster: HttpCluster
    masters: Masters
    namespace: str
    poll: float = 0.2
    """Seconds between two polls of the pods."""
    known: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)

    async def run(self) -> None:
        while True:
            try:
                await self.turn()
            except KubeError as error:
                self.errors.append(str(error))
            await asyncio.sleep(self.poll)

    async def turn(self) -> None:
        pods = [p for p in await self.cluster.list(POD, self.namespace) if JOB in labels_of(p)]
        present = {p["metadata"]["uid"] for p in pods}
        for uid in self.known - present:
            self.masters.stop(uid)
        self.known = present
        await asyncio.gather(*(self._pod(p) for p in pods))

    async def _pod(self, pod: Manifest) -> None:
        meta, phase = pod["metadata"], pod.get("status", {}).get("phase")
        if "deletionTimestamp" in meta:
            self.masters.stop(meta["uid"])
            await self._remove(pod)
        elif labels_of(pod)[ROLE] == "check":
            await self._check(pod)
        elif phase != "Running" or not _ready(pod):
            await self._start(pod)

    async def _start(self, pod: Manifest) -> None:
        image = pod["spec"]["containers"][0]["image"]
        behaviour = self.masters.behaviour(image)
        if not behaviour.pulls:
            waiting = {"waiting": {"reason": "ImagePullBackOff", "message": f"Back-off pulling image {image}"}}
            await self._report(pod, "Pending", [_container(pod, waiting)])
            return
        if any(v["name"] == CHECK_VARIABLE for v in pod["spec"]["containers"][0].get("env", ())):
            await self._refuse(pod, "the master has no log here, so its check has no result")
            return
        if labels_of(pod)[ROLE] == "master":
            await self._mount_config(pod)
            started = await asyncio.to_thread(self.masters.start, pod)
            if not started:
                await self._refuse(pod, "refused to start")
                return
        else:
            self.masters.add_worker(pod)
        running = {"running": {"startedAt": _now()}}
        await self._report(pod, "Running", [_container(pod, running, ready=True)], ready=True)

    async def _refuse(self, pod: Manifest, message: str) -> None:
        waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
        ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": message}}
        await self._report(pod, "Running", [_container(pod, waiting, restarts=_restarts(pod) + 1, last=ended)])

    async def _mount_config(self, pod: Manifest) -> None:
        """Mount the file and set the number in the container's environment, each from the ConfigMap that the pod names."""
        namespace, name = pod["metadata"]["namespace"], labels_of(pod)[JOB]
        volume = next(v for v in pod["spec"]["volumes"] if v["name"] == "config")
        source = volume["projected"]["sources"][0]["configMap"]
        config = await self.cluster.get(CONFIG_MAP, namespace, source["name"])
        env = pod["spec"]["containers"][0]["env"]
        number = next(e for e in env if e["name"] == "PENSTOCK_PARALLELISM")["valueFrom"]["configMapKeyRef"]
        variable = await self.cluster.get(CONFIG_MAP, namespace, number["name"])
        if config is not None and variable is not None:
            keys = f"{config['data']['penstock.yaml']}\nparallelism.default: {variable['data'][number['key']]}\n"
            self.masters.configs[f"{namespace}/{name}"] = keys

    async def _check(self, pod: Manifest) -> None:
        image, phase = pod["spec"]["containers"][0]["image"], pod.get("status", {}).get("phase")
        behaviour = self.masters.behaviour(image)
        if not behaviour.pulls:
            waiting = {"waiting": {"reason": "ImagePullBackOff", "message": f"Back-off pulling image {image}"}}
            await self._report(pod, "Pending", [_container(pod, waiting)])
        elif not pod["spec"].get("nodeName"):
            await self._bind(pod)
        elif phase == "Pending":
            await self._report(
                pod, "Running", [_container(pod, {"running": {"startedAt": _now()}}, ready=True)], ready=True
            )
        elif phase == "Running":
            report = behaviour.check or {"ok": True, "problems": [], "graph": {}}
            code = 0 if report["ok"] else 1
            reason, message = ("Completed", "") if code == 0 else ("Error", json.dumps(report))
            ended = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
            await self._report(pod, "Failed" if code else "Succeeded", [_container(pod, ended)])

    async def _bind(self, pod: Manifest) -> None:
        """Bind the pod to a node that does not exist, so that its log is not available."""
        meta = pod["metadata"]
        path = f"{POD.path(meta['namespace'], meta['name'])}/binding"
        target = {"kind": "Node", "name": "sim"}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"]}, "target": target}
        with contextlib.suppress(KubeError):
            await self.cluster._send("POST", POD, path, body=body)

    async def _report(
        self, pod: Manifest, phase: str, containers: list[dict[str, Any]], *, ready: bool = False
    ) -> None:
        truth = "True" if ready else "False"
        conditions = [
            {"type": kind, "status": truth, "lastTransitionTime": _now()} for kind in ("Ready", "ContainersReady")
        ]
        conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": _now()})
        status = {
            "phase": phase,
            "conditions": conditions,
            "containerStatuses": containers,
            "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}],
            "startTime": _now(),
        }
        with contextlib.suppress(KubeError):
            await self.cluster.replace({**pod, "status": status}, subresource="status")

    async def _remove(self, pod: Manifest) -> None:
        meta = pod["metadata"]
        path = POD.path(meta["namespace"], meta["name"])
        with contextlib.suppress(KubeError):
            await self.cluster._send("DELETE", POD, path, body={"gracePeriodSeconds": 0})


def _container(
    pod: Manifest, state: dict[str, Any], *, ready: bool = False, restarts: int = 0, last: dict[str, Any] | None = None
) -> dict[str, Any]:
    spec = pod["spec"]["containers"][0]
    found = {"name": spec["name"], "image": spec["image"], "imageID": "", "ready": ready, "restartCount": restarts}
    return {**found, "started": ready, "state": state, "lastState": last or {}}


def _ready(pod: Manifest) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _restarts(pod: Manifest) -> int:
    return max((c["restartCount"] for c in pod.get("status", {}).get("containerStatuses", ())), default=0)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
