"""The node level runs real containers, and leaves no trace after its end, also after a crash."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tools.devcluster import Cluster, host, node, plan
from tools.devcluster.cluster import KubectlFailed
from tools.errors import ToolError
from tools.servers.s3 import S3Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[3]
IMAGE = "localhost/busybox:1"
WEB = """
apiVersion: v1
kind: ConfigMap
metadata: {name: page}
data: {index.html: hello}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      securityContext: {runAsUser: 185, runAsGroup: 185, fsGroup: 185, runAsNonRoot: true}
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: localhost/busybox:1
        args: [httpd, -f, -p, "8080", -h, /www]
        ports: [{containerPort: 8080}]
        volumeMounts: [{name: page, mountPath: /www}]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
        securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        resources: {limits: {cpu: 200m, memory: 64Mi}}
      volumes: [{name: page, configMap: {name: page}}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-headless}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 8080}]}
"""


@pytest.fixture(scope="module")
def web(cluster: Cluster) -> Iterator[Cluster]:
    cluster.apply(WEB)
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
    yield cluster
    cluster.kubectl("delete", "-f", "-", "--wait=false", stdin=WEB)


def test_pods_run_as_a_restricted_user(web: Cluster) -> None:
    pod = first_pod(web)
    assert "uid=185 gid=185" in web.kubectl("exec", pod, "--", "/busybox", "id")
    with pytest.raises(KubectlFailed, match="Read-only file system"):
        web.kubectl("exec", pod, "--", "/busybox", "touch", "/file")


def test_services_are_found_by_name_from_pods_and_by_address_from_the_host(web: Cluster) -> None:
    pod = first_pod(web)
    for name in ("web.default.svc.cluster.local", "web-headless:8080"):
        assert web.kubectl("exec", pod, "--", "/busybox", "wget", "-qO-", f"http://{name}/") == "hello"
    address = web.kubectl("get", "service", "web", "--output", "jsonpath={.spec.clusterIP}")
    with urllib.request.urlopen(f"http://{address}/", timeout=10) as answer:
        assert answer.read() == b"hello"


def test_an_unknown_name_fails_immediately(web: Cluster) -> None:
    began = time.monotonic()
    with pytest.raises(KubectlFailed, match=r"bad address|NXDOMAIN"):
        web.kubectl("exec", first_pod(web), "--", "/busybox", "wget", "-qO-", "http://elsewhere.example/")
    assert time.monotonic() - began < 5


def test_pods_reach_a_server_of_this_machine(web: Cluster, tmp_path: Path) -> None:
    with S3Server(tmp_path, host=web.host_address) as s3, pytest.raises(KubectlFailed, match="403"):
        web.kubectl("exec", first_pod(web), "--", "/busybox", "wget", "-qO-", s3.endpoint_url)


def test_memory_limit_is_enforced(cluster: Cluster) -> None:
    eater = {
        "name": "hog",
        "image": IMAGE,
        "command": ["/busybox", "tail", "/dev/zero"],
        "resources": {"limits": {"memory": "32Mi"}},
    }
    spec = {"restartPolicy": "Never", "containers": [eater]}
    cluster.apply(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hog"}, "spec": spec}))
    path = "jsonpath={.status.containerStatuses[0].state.terminated.reason}"
    wait_until(lambda: cluster.kubectl("get", "pod", "hog", "--output", path) == "OOMKilled")
    cluster.kubectl("delete", "pod", "hog", "--wait=false")


def test_stopped_kubelet_is_a_lost_node(cluster: Cluster) -> None:
    path = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
    cluster.signal("kubelet", signal.SIGSTOP)
    try:
        wait_until(lambda: cluster.kubectl("get", "node", plan.NODE_NAME, "--output", path) == "Unknown", seconds=120)
    finally:
        cluster.signal("kubelet", signal.SIGCONT)
    wait_until(lambda: cluster.kubectl("get", "node", plan.NODE_NAME, "--output", path) == "True")


def test_image_is_loaded_once(cluster: Cluster, busybox_archive: Path, tmp_path: Path) -> None:
    assert cluster.load(busybox_archive) == [IMAGE]
    assert IMAGE in cluster.images()
    with pytest.raises(ToolError, match="neither an archive nor a built image is called 'localhost/none:1'"):
        cluster.load("localhost/none:1")
    torn = tmp_path / "torn.tar"
    torn.write_bytes(busybox_archive.read_bytes()[:10_000])
    with pytest.raises(ToolError, match="import"):
        cluster.load(torn)


def test_images_outlive_down_and_pods_do_not(busybox_archive: Path) -> None:
    with own_cluster() as name:
        with Cluster(name) as running:
            running.load(busybox_archive)
            running.apply(WEB)
            running.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
        with Cluster(name) as running:
            assert IMAGE in running.images()
            assert running.kubectl("get", "pods") == ""
            running.apply(WEB)
            running.kubectl("rollout", "status", "deployment/web", "--timeout=120s")


def test_down_removes_all_processes_and_files(busybox_archive: Path) -> None:
    with own_cluster() as name:
        before = Machine.seen(name)
        with Cluster(name) as running:
            running.load(busybox_archive)
            running.apply(WEB)
            running.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
            during = Machine.seen(name)
        after = Machine.seen(name)
    assert during.processes, "the check does not find the running cluster"
    assert during.links - before.links
    assert during.routes - before.routes
    assert during.cgroups - before.cgroups
    after.assert_same_as(before)


@pytest.mark.parametrize("seconds", [0.3, 1.5, 4.0])
def test_down_removes_the_leftovers_of_a_killed_up(seconds: float) -> None:
    with own_cluster() as name:
        before = Machine.seen(name)
        up = subprocess.Popen(
            [sys.executable, "-m", "tools.devcluster", "--name", name, "up"], cwd=ROOT, start_new_session=True
        )
        time.sleep(seconds)
        up.kill()
        up.wait()
        Cluster(name).down()
        Machine.seen(name).assert_same_as(before)


def test_nothing_is_left_after_the_first_process_was_killed() -> None:
    with own_cluster() as name:
        before = Machine.seen(name)
        with Cluster(name) as running:
            first = int(running.node_command()[2])
            os.kill(first, signal.SIGKILL)
            wait_until(lambda: not running.is_up())
        Machine.seen(name).assert_same_as(before)


class own_cluster:  # noqa: N801 - used as a function
    """A name for a cluster that only one test uses. The context removes its images at the end."""

    name = "tools-test-own"

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        Cluster(self.name).down()
        shutil.rmtree(plan.image_root(self.name), ignore_errors=True)


class Machine:
    """Everything that a cluster could leave behind, except parts of other clusters on this machine."""

    def __init__(self, name: str) -> None:
        root = str(plan.state_root(name))
        others = {
            str(path.read_text()): f"penstock-dev{path.name}"
            for path in (host.CLAIMS.iterdir() if host.CLAIMS.exists() else ())
            if path.name.isdigit()
        }
        foreign = {link for owner, link in others.items() if owner != root}
        self.processes = set(matching_processes(root))
        self.mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
        self.links = {link["ifname"] for link in ip("link")} - foreign
        routes = ip("-4", "route", "show", "table", "all")
        self.routes = {(route["dst"], route.get("dev")) for route in routes if route.get("dev") not in foreign}
        groups = {str(path) for path in host.CGROUPS.glob("**/*penstock-dev*")}
        groups |= {str(path) for path in host.CGROUPS.glob("**/kubepods*")}
        self.cgroups = {path for path in groups if not any(f"/{link}" in path for link in foreign)}
        self.rules = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
        kernel = [*node.SYSCTLS, "net/ipv4/ip_forward", "net/netfilter/nf_conntrack_max", "kernel/hostname"]
        self.sysctls = {
            name: (Path("/proc/sys") / name).read_text() for name in kernel if (Path("/proc/sys") / name).exists()
        }
        directories = [plan.state_root(name), Path("/run/containerd"), Path("/var/run/netns"), Path("/etc/cni/net.d")]
        if not foreign:
            directories += [host.CLAIMS, *node.OWN_DIRECTORIES]
        self.directories = {str(path): path.exists() for path in directories}

    @classmethod
    def seen(cls, name: str) -> Machine:
        return cls(name)

    def assert_same_as(self, before: Machine) -> None:
        for field, value in vars(self).items():
            assert value == getattr(before, field), f"{field} differ"


def matching_processes(root: str) -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                group = (entry / "cgroup").read_text()
            except OSError:
                continue
            if f"{root}/" in command or command.strip().endswith(root) or "kubepods" in group:
                yield command


def ip(*arguments: str) -> list[dict[str, Any]]:
    printed = subprocess.run(["ip", "-json", *arguments], capture_output=True, text=True, check=True).stdout
    parsed: list[dict[str, Any]] = json.loads(printed)
    return parsed


def first_pod(cluster: Cluster) -> str:
    return cluster.kubectl("get", "pods", "--selector=app=web", "--output", "jsonpath={.items[0].metadata.name}")


def wait_until(condition: Callable[[], bool], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.2)
