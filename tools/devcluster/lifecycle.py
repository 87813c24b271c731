"""The start and the stop of a cluster, step by step.

``start`` returns when the cluster is able to create the pods of a new Deployment. ``stop`` reverts every step of a
start. It reads the state of the machine and the recorded files, not the progress of ``start``. It can therefore also
clean up after a start that was killed.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tools import processes
from tools.devcluster import api, host, nodeconfig, pki, plan, store
from tools.devcluster.plan import Level, Plan, Ports
from tools.errors import NotRunning, ToolError

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).resolve().parents[2]
STEP_TIMEOUT = 300.0
"""Seconds for each step of a start. An idle machine takes 10 s for all steps, a busy one much longer."""


def start(name: str, level: Level, programs: Path) -> None:
    """Start the cluster ``name`` with the programs in ``programs``. No cluster of this name may be up.

    Raises ``NotRunning`` with the ends of the logs if a step times out or fails.
    """
    planned = _claim(name, level, programs)
    planned.logs.mkdir()
    pki.make_certificates(planned)
    pki.make_kubeconfigs(planned)
    if level == "node":
        nodeconfig.write(planned)
        host.make_cgroups(planned)
    _spawn(planned)
    if level == "node":
        _wait(planned, "containerd", lambda: _containerd_answers(planned))
        store.prepare(planned)
        planned.store_ready.touch()
    _wait(planned, "the API server", lambda: api.serves(planned))
    if level == "node":
        _wait(planned, "the node", lambda: api.node_is_ready(planned))
        _wait(planned, "DNS", lambda: api.dns_answers(planned))
    _wait(planned, "the default service account", lambda: api.default_account_exists(planned))


def stop(root: Path) -> None:
    """Stop the cluster whose state is in ``root``, if it exists, and revert its changes on the machine."""
    found = plan.load(root)
    process = processes.load(process_file(root))
    if process is not None:
        process.end(patience=15.0)
    spawned = processes.load(_spawned_file(root))
    if spawned is not None:
        spawned.end(patience=15.0)
        processes.reap(spawned.pid)
    if found is not None and found.level == "node":
        host.remove_link(found)
        host.remove_cgroups(found)
        store.forget_containers(found)
        host.release(found)
    if root.exists():
        shutil.rmtree(root)


def process_file(root: Path) -> Path:
    """Return the file that identifies the cluster's supervisor."""
    return root / "process.json"


def _spawned_file(root: Path) -> Path:
    """Return the file of the process that ``start`` started. At the node level it is the supervisor's parent, outside its namespaces."""
    return root / "spawned.json"


def _claim(name: str, level: Level, programs: Path) -> Plan:
    """Save the plan, with addresses that no other cluster has."""
    root, images = plan.state_root(name), plan.image_root(name)
    root.mkdir(mode=0o700, parents=True)
    if level == "node":
        images.mkdir(mode=0o711, parents=True, exist_ok=True)
        return host.claim(Plan(name, level, root, images, programs))
    planned = Plan(name, level, root, images, programs, ports=_free_ports())
    planned.save()
    return planned


def _spawn(planned: Plan) -> None:
    """Start the supervisor, at the node level inside new namespaces, and record its process."""
    # -P: modules in the current directory must not shadow the project's modules
    command = [sys.executable, "-P", "-m", "tools.devcluster.supervisor", str(planned.root)]
    if planned.level == "node":
        namespaces = ["--mount", "--pid", "--net", "--uts", "--ipc", "--propagation", "slave"]
        command = ["unshare", *namespaces, "--fork", "--kill-child", "--mount-proc", *command]
    pid = processes.spawn(
        command,
        environment={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"},
        log=planned.logs / "supervisor.log",
    )
    processes.save(_spawned_file(planned.root), processes.of(pid))
    if planned.level == "node":
        outer = pid
        _wait(planned, "the node's first process", lambda: _first_inside(outer) is not None)
        pid = _first_inside(outer) or outer
    processes.save(process_file(planned.root), processes.of(pid))
    if planned.level == "node":
        host.make_link(planned, pid)


def _wait(planned: Plan, description: str, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + STEP_TIMEOUT
    while not ready():
        process = processes.load(process_file(planned.root))
        dead = process is not None and not process.alive()
        if dead or time.monotonic() > deadline:
            waited = "its processes ended" if dead else f"the timeout of {STEP_TIMEOUT:.0f} s passed"
            raise NotRunning(
                f"{description} of the cluster {planned.name!r} did not start: {waited}\n{_last_words(planned)}",
                remedy="read the ends of its logs above, and check the machine's memory and disk",
            )
        time.sleep(0.05)


def _last_words(planned: Plan) -> str:
    lines: list[str] = []
    for log in sorted(planned.logs.glob("*.log")):
        lines += [f"--- {log.stem}", *log.read_text(errors="replace").splitlines()[-8:]]
    return "\n".join(lines)


def _free_ports() -> Ports:
    """Return free ports. All of them are bound at the same time, so that no two are equal."""
    with ExitStack() as probes:
        numbers = []
        for _ in range(5):
            probe = probes.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            numbers.append(probe.getsockname()[1])
    return Ports(*numbers)


def _first_inside(outer: int) -> int | None:
    """Return the first process of the namespaces that ``unshare`` made, or None until it is in its network namespace."""
    inside = processes.children(outer)
    if inside and os.readlink(f"/proc/{inside[0]}/ns/net") != os.readlink("/proc/self/ns/net"):
        return inside[0]
    return None


def _containerd_answers(planned: Plan) -> bool:
    if not planned.containerd_socket.exists():
        return False
    try:
        store.ctr(planned, "version")
    except ToolError:
        return False
    return True
