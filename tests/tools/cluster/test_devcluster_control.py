"""The control level is a real API server with its controllers, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tools import processes
from tools.devcluster import Cluster, lifecycle
from tools.devcluster.binaries import KUBERNETES
from tools.devcluster.cluster import KubectlFailed
from tools.errors import NotRunning, ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

NAME = "control-test"
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "valves.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Valve", "plural": "valves", "singular": "valve"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"size": {"type": "integer"}},
                                "x-kubernetes-validations": [{"rule": "self.size > 0", "message": "size is positive"}],
                            }
                        },
                    }
                },
            }
        ],
    },
}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "localhost/none:1"}]},
        },
    },
}


@pytest.fixture(scope="module")
def control() -> Iterator[Cluster]:
    with Cluster(NAME, level="control") as cluster:
        yield cluster


def test_controllers_work_without_running_pods(control: Cluster) -> None:
    control.apply(json.dumps(DEPLOYMENT))
    wait_until(lambda: control.kubectl("get", "pods", "--selector", "app=web", "--output", "name").count("pod/") == 2)
    control.kubectl("delete", "deployment", "web")


def test_custom_resources_are_validated(control: Cluster) -> None:
    control.apply(json.dumps(CRD))
    control.kubectl("wait", "--for=condition=Established", "crd/valves.example.com", "--timeout=60s")
    valve = {"apiVersion": "example.com/v1", "kind": "Valve", "metadata": {"name": "main"}, "spec": {"size": 2}}
    control.apply(json.dumps(valve))
    with pytest.raises(KubectlFailed, match="size is positive"):
        control.apply(json.dumps({**valve, "spec": {"size": 0}}))
    control.kubectl("delete", "crd", "valves.example.com")


def test_helm_installs_a_chart(control: Cluster, tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: small\nversion: 0.1.0\nkubeVersion: '>=1.35'\n")
    (tmp_path / "templates" / "config.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {version: {{ .Capabilities.KubeVersion }}}\n"
    )
    control.helm("install", "release", str(tmp_path), "--wait")
    assert control.kubectl("get", "configmap", "release", "--output", "jsonpath={.data.version}") == f"v{KUBERNETES}"
    minor = KUBERNETES.rpartition(".")[0]
    assert f"version: v{minor}.0" in control.helm("template", str(tmp_path))
    control.helm("uninstall", "release")


def test_access_is_controlled_by_roles(control: Cluster) -> None:
    with pytest.raises(KubectlFailed, match="kubectl auth can-i list secrets"):
        control.kubectl("auth", "can-i", "list", "secrets", "--as=nobody")


def test_a_second_up_does_not_change_the_running_cluster(control: Cluster) -> None:
    before = control.pids()
    with Cluster(NAME, level="control") as again:
        assert again.pids() == before
    assert control.is_up()


def test_a_killed_component_restarts(control: Cluster) -> None:
    before = control.pids()["kube-scheduler"]
    control.signal("kube-scheduler", signal.SIGKILL)
    wait_until(lambda: control.pids().get("kube-scheduler", before) != before)
    with pytest.raises(NotRunning, match="choose one of: etcd, kube-apiserver"):
        control.signal("kubelet", signal.SIGSTOP)


def test_images_need_a_node(control: Cluster) -> None:
    with pytest.raises(ToolError, match="has no node"):
        control.load("localhost/none:1")


def test_several_clusters_run_at_the_same_time(control: Cluster) -> None:
    with Cluster("control-test-2", level="control") as other:
        other.kubectl("create", "namespace", "only-here")
        with pytest.raises(KubectlFailed, match="not found"):
            control.kubectl("get", "namespace", "only-here")
    assert not other.is_up()
    assert control.is_up()


def test_down_removes_all_processes_and_files() -> None:
    cluster = Cluster("control-test-3", level="control")
    with cluster:
        pids = cluster.pids()
        assert len(pids) == 4
    wait_until(lambda: not any(processes.name(pid) for pid in pids.values()), seconds=10)
    assert not cluster.root.exists()
    with pytest.raises(NotRunning, match="is down"):
        cluster.kubectl("get", "pods")
    cluster.down()


def test_death_of_the_supervisor_ends_its_components() -> None:
    with Cluster("control-test-3", level="control") as cluster:
        pids = cluster.pids()
        supervisor = processes.load(lifecycle.process_file(cluster.root))
        assert supervisor is not None
        supervisor.send(signal.SIGKILL)
        wait_until(lambda: not any(processes.name(pid) for pid in pids.values()), seconds=10)
        assert not cluster.is_up()


def test_command_line_shows_the_running_components(control: Cluster) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tools.devcluster", "--name", NAME, *arguments]
        return subprocess.run(
            command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False, env=dict(os.environ)
        )

    status = run("status")
    assert status.returncode == 0, status.stderr
    assert "level control" in status.stdout
    assert "kube-apiserver" in status.stdout
    assert run("kubeconfig").stdout.strip() == str(control.kubeconfig)
    assert "kube-system" in run("kubectl", "--", "get", "namespaces").stdout
    refused = run("load", "localhost/none:1")
    assert (refused.returncode, "has no node" in refused.stderr) == (1, True)


def wait_until(condition: Callable[[], bool], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.1)
