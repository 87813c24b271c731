"""A namespace on a real control plane with a simulated kubelet, masters, storage, and operators to start and to kill."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from penstock_operator.kube.cluster import EVENT, FLINKJOB, FLINKSNAPSHOT, Manifest
from penstock_operator.kube.credentials import find_credentials
from penstock_operator.kube.http import HttpCluster
from tests.integration.operator.sim.kubelet import Kubelet
from tests.integration.operator.sim.masters import Masters
from tools.devcluster.cluster import KubectlFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tools.devcluster import Cluster

ROOT = Path(__file__).parents[4]
NAME = "weather"


def install_crds(control: Cluster) -> None:
    """Install the CRDs, and wait until the API server serves and documents them."""
    control.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
    for kind in ("flinkjobs", "flinksnapshots"):
        control.kubectl("wait", "--for=condition=Established", f"crd/{kind}.penstock.dev", "--timeout=60s")
    deadline = time.monotonic() + 60
    while True:
        try:
            control.kubectl("explain", "flinksnapshot")
            return
        except KubectlFailed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


@dataclass
class Site:
    """A namespace with restricted pods, a kubelet, masters, storage, and operators as processes."""

    control: Cluster
    cluster: HttpCluster
    namespace: str
    masters: Masters
    kubelet: Kubelet
    rest_port: int
    folder: Path
    operators: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)

    def start_operator(self, **env: str) -> subprocess.Popen[bytes]:
        """Start one replica like in its pod."""
        port = free_port()
        number = len(self.operators)
        settings = {
            **self.control.environment(),
            "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'runtime'}",
            "PENSTOCK_WATCH_NAMESPACES": self.namespace,
            "PENSTOCK_OPERATOR_NAMESPACE": self.namespace,
            "PENSTOCK_POD_NAME": f"operator-{number}",
            "PENSTOCK_PORT": str(port),
            "PENSTOCK_REST_URL": f"http://127.0.0.1:{self.rest_port}/{{namespace}}/{{name}}",
            "PENSTOCK_WATCH_INTERVAL": "5s",
            "PENSTOCK_STORAGE_LOCATIONS": f"file://{self.folder}",
            **env,
        }
        log = (self.folder / f"operator-{number}.log").open("wb")
        command = [sys.executable, "-m", "penstock_operator", "run"]
        process = subprocess.Popen(command, env=settings, stdout=log, stderr=log)
        self.operators.append(process)
        self.ports.append(port)
        return process

    def manifest(self, name: str = NAME, *, image: str = "job:1", **job: Any) -> Manifest:
        root = f"file://{self.folder}/storage"
        return {
            "apiVersion": "penstock.dev/v1beta1",
            "kind": "FlinkJob",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "image": image,
                "job": {"entry": "job.py", "parallelism": 2, **job},
                "storage": {"checkpoints": f"{root}/checkpoints", "savepoints": f"{root}/savepoints"},
                "configuration": {"execution.checkpointing.interval": "1s"},
                "rollback": {"after": "90s"},
            },
        }

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.control.kubectl("-n", self.namespace, *arguments, stdin=stdin)

    def apply(self, manifest: Manifest) -> None:
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(manifest))

    async def job(self, name: str = NAME) -> Manifest | None:
        return await self.cluster.get(FLINKJOB, self.namespace, name)

    async def edit(self, name: str = NAME, **spec: Any) -> None:
        await self.cluster.merge(FLINKJOB, self.namespace, name, {"spec": spec})

    async def until(
        self, reached: Callable[[], Awaitable[bool]], description: str, *, within: float = 240, poll: float = 0.2
    ) -> float:
        """Wait until a condition is true, and return the seconds."""
        started_at = time.monotonic()
        while not await reached():
            if time.monotonic() - started_at > within:
                raise AssertionError(f"not within {within} s: {description}\n{await self.describe()}")
            await asyncio.sleep(poll)
        return time.monotonic() - started_at

    async def running(self, name: str = NAME, *, parallelism: int | None = None, image: str | None = None) -> bool:
        """Return whether the job is Ready for the current generation, and runs as expected."""
        found = await self.job(name)
        if found is None or not is_true(found, "Ready"):
            return False
        now = found["status"].get("running") or {}
        return parallelism in (None, now.get("parallelism")) and image in (None, now.get("image"))

    async def stalled(self, reason: str, name: str = NAME) -> bool:
        found = await self.job(name) or {}
        stalled = condition(found, "Stalled")
        current = found.get("status", {}).get("observedGeneration") == found.get("metadata", {}).get("generation")
        return bool(current and stalled.get("status") == "True" and stalled.get("reason") == reason)

    async def describe(self) -> str:
        jobs = await self.cluster.list(FLINKJOB, self.namespace)
        events = await self.cluster.list(EVENT, self.namespace)
        mine = [e for e in events if e.get("involvedObject", {}).get("kind", "").startswith("Flink")]
        lines = [f"{e['reason']}: {e['message']}" for e in mine[-20:]]
        lines += [json.dumps(j.get("status", {}), indent=1)[:3000] for j in jobs[:2]]
        lines.append(self.kubectl("get", "pods", "-o", "wide"))
        lines += [f"kubelet: {error}" for error in self.kubelet.errors[-3:]]
        for path in sorted(self.folder.glob("operator-*.log")):
            lines.append(f"--- {path.name}\n{path.read_text()[-3000:]}")
        return "\n".join(lines)

    async def close(self) -> None:
        """Stop the operators, remove finalizers, and delete the namespace."""
        for process in self.operators:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait()
        for kind in (FLINKJOB, FLINKSNAPSHOT):
            for manifest in await self.cluster.list(kind, self.namespace):
                name = manifest["metadata"]["name"]
                await self.cluster.merge(kind, self.namespace, name, {"metadata": {"finalizers": []}})
        self.control.kubectl("delete", "namespace", self.namespace, "--wait=false")


def condition(manifest: Manifest, kind: str) -> dict[str, Any]:
    found = manifest.get("status", {}).get("conditions", ())
    return next((c for c in found if c["type"] == kind), {})


def is_true(manifest: Manifest, kind: str) -> bool:
    current = manifest.get("status", {}).get("observedGeneration") == manifest["metadata"]["generation"]
    return bool(current and condition(manifest, kind).get("status") == "True")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.asynccontextmanager
async def open_site(control: Cluster, folder: Path) -> AsyncIterator[Site]:
    """Start everything that a test needs, and remove all of it at the end."""
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    control.kubectl("create", "namespace", namespace)
    control.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    cluster = HttpCluster(find_credentials(str(control.kubeconfig)))
    masters = Masters()
    runner = web.AppRunner(masters.app(), access_log=None)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    kubelet = Kubelet(cluster, masters, namespace)
    site = Site(control, cluster, namespace, masters, kubelet, port, folder)
    task = asyncio.create_task(kubelet.run())
    try:
        yield site
    finally:
        if task.done():
            task.result()
        await site.close()
        await asyncio.sleep(0.5)
        task.cancel()
        await runner.cleanup()
        await cluster.close()


os.environ.setdefault("NO_PROXY", "*")
