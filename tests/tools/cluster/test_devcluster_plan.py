"""A cluster's plan, its files and the reasons for a refusal. Nothing starts here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from ipaddress import ip_network
from itertools import combinations
from pathlib import Path

import pytest

from tools import processes
from tools.devcluster import components, host, nodeconfig, plan, preflight, store
from tools.devcluster.plan import NUMBERS, Plan, Ports
from tools.errors import ToolError, Unsupported


def planned(root: Path, **changes: object) -> Plan:
    base = Plan("a", "node", root, root / "images", Path("/bin"))
    return replace(base, **changes)  # type: ignore[arg-type]


def test_clusters_share_no_address(tmp_path: Path) -> None:
    plans = [planned(tmp_path, number=number) for number in NUMBERS]
    ranges = [
        ip_network(text, strict=False)
        for one in plans
        for text in (one.pod_range, one.service_range, f"{one.node_address}/30")
    ]
    assert [(a, b) for a, b in combinations(ranges, 2) if a.overlaps(b)] == []
    assert len({one.link for one in plans}) == len(plans)


def test_a_saved_plan_is_read_unchanged(tmp_path: Path) -> None:
    written = planned(tmp_path, number=3, ports=Ports(api=1234))
    written.save()
    assert plan.load(tmp_path) == written
    assert plan.load(tmp_path / "elsewhere") is None


@pytest.mark.parametrize("name", ["", "Dev", "../up", "a b", "-a", "a" * 40])
def test_bad_name_of_a_cluster_is_refused(name: str) -> None:
    with pytest.raises(ToolError, match="not a valid cluster name"):
        plan.state_root(name)


def test_path_too_long_for_a_socket_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CLUSTER_STATE", "/tmp/" + "x" * 100)
    with pytest.raises(ToolError, match="too long"):
        plan.state_root("dev")


def test_kubelet_waits_for_the_store_and_the_api_server(tmp_path: Path) -> None:
    api_is_ready = False
    wanted = {one.name: one for one in components.components(planned(tmp_path), lambda: api_is_ready)}
    assert [name for name, one in wanted.items() if one.ready()] == ["etcd", "kube-apiserver", "containerd"]
    api_is_ready = True
    assert not wanted["kubelet"].ready()
    assert wanted["kube-scheduler"].ready()
    planned(tmp_path).store_ready.touch()
    assert wanted["kubelet"].ready()


def test_control_level_has_no_node(tmp_path: Path) -> None:
    names = [one.name for one in components.components(planned(tmp_path, level="control"), lambda: True)]
    assert names == ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]


def test_node_changes_nothing_that_the_kernel_has_only_once(tmp_path: Path) -> None:
    nodeconfig.write(planned(tmp_path))
    proxy = json.loads((tmp_path / "conf" / "proxy.yaml").read_text())
    assert proxy["conntrack"] == {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    kubelet = json.loads((tmp_path / "conf" / "kubelet.yaml").read_text())
    assert kubelet["cgroupRoot"] == "/penstock-dev0"


@pytest.mark.parametrize(
    ("unified", "file", "weight"),
    [(False, "cpu/penstock-dev0/cpu.shares", "3072"), (True, "penstock-dev0/cpu.weight", "300")],
)
def test_pods_have_the_weight_of_all_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unified: bool, file: str, weight: str
) -> None:
    monkeypatch.setattr(host, "CGROUPS", tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    (tmp_path / "cpu").mkdir()
    if unified:
        (tmp_path / "cgroup.controllers").write_text("cpu memory")
        (tmp_path / "penstock-dev0").mkdir()
        (tmp_path / "penstock-dev0" / "cgroup.controllers").write_text("cpu memory")
    host.make_cgroups(planned(tmp_path))
    assert (tmp_path / file).read_text() == weight


def test_program_image_depends_only_on_the_program(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF")
    first = store.program_image("localhost/pause:1", program)
    os.utime(program, (1, 1))
    assert store.program_image("localhost/pause:1", program) == first


def test_a_machine_that_cannot_host_a_node_gets_every_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "install_missing", lambda: None)
    monkeypatch.setattr(preflight, "missing_packages", list)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in ("_namespaces", "_overlay", "_links", "_cgroups"):
        monkeypatch.setattr(preflight, name, lambda name=name: f"no {name}")
    with pytest.raises(Unsupported) as refused:
        preflight.check("node", Path("/run/user/state"))
    for word in ("_namespaces", "_overlay", "_links", "_cgroups", "the node covers /run", "--level control"):
        assert word in str(refused.value)


def test_a_user_without_root_gets_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Unsupported, match="not root"):
        preflight.check("node", tmp_path)


def test_missing_program_is_named_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unsupported, match=r"openssl.*Debian package openssl"):
        preflight.check("control", tmp_path)
    assert "containerd" in preflight.missing_packages()


def test_a_process_that_reuses_a_pid_is_not_touched(tmp_path: Path) -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        process = processes.of(sleeper.pid)
        processes.save(tmp_path / "p", process)
        assert processes.load(tmp_path / "p") == process
        replace(process, started=process.started - 1).end(patience=0)
        assert process.alive()
        process.send(signal.SIGSTOP)
        process.end(patience=5)
        assert not process.alive()
    finally:
        sleeper.kill()
        sleeper.wait()
    with pytest.raises(ProcessLookupError):
        processes.of(sleeper.pid)
