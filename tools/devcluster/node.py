"""The inside of the node: what its first process does to its own mount, network and host name namespaces.

The node must not be seen from outside and must not change what the kernel has only once, yet needs the machine's file
system, its cgroups and its kernel. So it takes everything over and covers a few places:

- ``/sys`` is mounted anew, for this network namespace, with the machine's cgroups put back into it;
- the sysctls that the kubelet insists on, which are the whole kernel's, are covered by files with the values that it
  wants to see: it finds them right and leaves them alone;
- ``/run``, ``/var/lib/kubelet``, ``/var/lib/cni`` and ``/var/log`` are the node's own.

All of it is gone with the last process of the namespace.
"""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

from tools.devcluster.plan import NODE_NAME, Plan

OWN_DIRECTORIES = (Path("/var/lib/kubelet"), Path("/var/lib/cni"), Path("/var/log"))
"""Directories whose content is the node's own; ``host`` makes those that are missing and removes them again."""

SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
"""The kubelet's wishes (``kubernetes/pkg/kubelet/cm/container_manager_linux.go``, ``setupKernelTunables``)."""


def furnish(plan: Plan) -> None:
    """Prepare the namespaces for the components; run as their first process."""
    _run("mount", "--make-rslave", "/")
    _cover_sysfs(plan)
    _cover_sysctls(plan)
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    Path("/run/lock").mkdir()
    for directory in OWN_DIRECTORIES:
        own = plan.root / "node" / directory.name
        own.mkdir(parents=True, exist_ok=True)
        _run("mount", "--bind", str(own), str(directory))
    # the kubelet hands mounts on to containers
    _run("mount", "--make-rshared", "/")
    socket.sethostname(NODE_NAME)
    _bring_up_network(plan)


def _cover_sysfs(plan: Plan) -> None:
    cgroups = plan.root / "cgroups"
    cgroups.mkdir(exist_ok=True)
    _run("mount", "--rbind", "/sys/fs/cgroup", str(cgroups))
    _run("umount", "-l", "/sys")
    _run("mount", "-t", "sysfs", "sysfs", "/sys")
    _run("mount", "--rbind", str(cgroups), "/sys/fs/cgroup")
    _run("umount", "-l", str(cgroups))


def _cover_sysctls(plan: Plan) -> None:
    covers = plan.root / "sysctl"
    covers.mkdir(exist_ok=True)
    for name, value in SYSCTLS.items():
        place = Path("/proc/sys") / name
        if place.exists():
            cover = covers / name.replace("/", ".")
            cover.write_text(f"{value}\n")
            _run("mount", "--bind", str(cover), str(place))


def _bring_up_network(plan: Plan) -> None:
    """Wait for the link that the host puts in here, and give it its address."""
    while not Path("/sys/class/net/eth0").exists():
        time.sleep(0.02)
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{plan.node_address}/30", "dev", "eth0")
    _run("ip", "link", "set", "eth0", "up")
    _run("ip", "route", "add", "default", "via", plan.host_address)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
