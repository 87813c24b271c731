"""The inside of the node: the changes of its first process to its mount, network and host name namespaces.

The node must not be visible from outside, and must not change anything that the kernel has only once. It still needs the
machine's file system, cgroups and kernel. It therefore inherits everything and *covers* a few places, by mounts over
them:

- ``/sys`` is mounted again for this network namespace, and contains the machine's cgroups.
- Files cover the sysctls that the kubelet checks, because these sysctls belong to the whole kernel. The files have the values
  that the kubelet expects, so that it does not change them.
- ``/run``, ``/var/lib/kubelet``, ``/var/lib/cni`` and ``/var/log`` are separate in the node.

The kernel removes all of this with the last process of the namespace.
"""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

from tools.devcluster.plan import NODE_NAME, Plan

OWN_DIRECTORIES = (Path("/var/lib/kubelet"), Path("/var/lib/cni"), Path("/var/log"))
"""Directories with separate content in the node. ``host`` makes the missing ones, and removes them later."""

SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
"""Values that the kubelet expects (``kubernetes/pkg/kubelet/cm/container_manager_linux.go``, ``setupKernelTunables``)."""


def furnish(plan: Plan) -> None:
    """Prepare the namespaces for the components. The first process of the namespaces calls this function."""
    _run("mount", "--make-rslave", "/")
    _cover_sysfs(plan)
    _cover_sysctls(plan)
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    Path("/run/lock").mkdir()
    for directory in OWN_DIRECTORIES:
        own = plan.root / "node" / directory.name
        own.mkdir(parents=True, exist_ok=True)
        _run("mount", "--bind", str(own), str(directory))
    # the kubelet passes mounts on to containers
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
    """Wait for the link that the host moves into this namespace, and set its address."""
    while not Path("/sys/class/net/eth0").exists():
        time.sleep(0.02)
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{plan.node_address}/30", "dev", "eth0")
    _run("ip", "link", "set", "eth0", "up")
    _run("ip", "route", "add", "default", "via", plan.host_address)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
