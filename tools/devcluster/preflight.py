"""Check whether this machine can host a cluster, and list every reason if it cannot.

A test that needs a cluster must fail or be skipped with a useful reason, not with a timeout after two minutes. This module
therefore tries each thing that a node needs from the machine, before anything starts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tools.devcluster import host
from tools.devcluster.node import OWN_DIRECTORIES
from tools.devcluster.nodeconfig import CNI_DIRECTORIES
from tools.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.devcluster.plan import Level

PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "nft": "nftables",
    "ip": "iproute2",
    "mount": "mount",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
"""The programs that the node level runs, with their Debian packages."""

PROGRAMS_CONTROL = {"openssl": "openssl"}

CGROUP_CONTROLLERS = frozenset({"cpu", "cpuset", "memory", "pids"})


def check(level: Level, root: Path) -> None:
    """Install missing packages if possible. Raise ``Unsupported`` with all reasons if something is still missing.

    ``root`` is the directory for the cluster's state.
    """
    if level == "node" and os.geteuid() == 0 and sys.platform == "linux":
        install_missing()
    reasons = list(reasons_against(level, root))
    if reasons:
        raise Unsupported(
            f"this machine cannot host a cluster of level {level!r}:\n" + "\n".join(f"  - {line}" for line in reasons),
            remedy="run it as root in a virtual machine with Debian 12"
            + ("" if level == "control" else ", or use --level control where no pods are needed"),
        )


def missing_packages() -> list[str]:
    """Return the Debian packages of missing programs that the node level needs."""
    wanted = {**PROGRAMS, **PROGRAMS_CONTROL}
    packages = {package for program, package in wanted.items() if shutil.which(program) is None}
    if not any((directory / "bridge").exists() for directory in CNI_DIRECTORIES):
        packages.add("containernetworking-plugins")
    return sorted(packages)


def install_missing() -> None:
    """Install the missing packages with apt. This never removes an installed package.

    Without apt it does nothing, and the reasons list the missing packages. Raises ``Unsupported`` with apt's output.
    """
    packages = missing_packages()
    if packages and shutil.which("apt-get"):
        print(f"installing {' '.join(packages)}", file=sys.stderr, flush=True)
        apt_install(packages)


def apt_install(packages: list[str]) -> None:
    """Install Debian packages without a prompt. Raise ``Unsupported`` with apt's output if apt fails."""
    install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "--no-remove", *packages]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "--quiet"], install):
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode and command is install:
            raise Unsupported(
                f"apt could not install {' '.join(packages)}:\n{done.stdout[-2000:]}",
                remedy="install them by hand, or fix the package sources",
            )


def reasons_against(level: Level, root: Path) -> Iterator[str]:
    """Yield the reasons why this machine cannot host a cluster in its current state."""
    if sys.platform != "linux":
        yield f"this is {sys.platform}, but Kubernetes' servers need Linux"
        return
    for program, package in PROGRAMS_CONTROL.items():
        if shutil.which(program) is None:
            yield f"the program {program} is missing (Debian package {package})"
    if level == "control":
        return
    if os.geteuid() != 0:
        yield "you are not root, and namespaces, mounts and links need root"
        return
    if missing := missing_packages():
        yield f"programs of these Debian packages are missing: {', '.join(missing)}"
        return
    for directory in (*OWN_DIRECTORIES, Path("/run")):
        if root.is_relative_to(directory):
            yield f"the state would be in {root}, but the node covers {directory} (PENSTOCK_CLUSTER_STATE)"
    for problem in (_namespaces, _overlay, _links, _cgroups):
        if reason := problem():
            yield reason


def _namespaces() -> str | None:
    command = ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--mount-proc"]
    script = "mount -t tmpfs none /mnt && mount -t sysfs none /sys"
    return _tried("the kernel refuses new namespaces with separate mounts", [*command, "sh", "-c", script])


def _overlay() -> str | None:
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("lower", "upper", "work", "merged"):
            (Path(scratch) / name).mkdir()
        options = ",".join(f"{name}dir={scratch}/{name}" for name in ("lower", "upper", "work"))
        mount = f"mount -t overlay overlay -o {options} {scratch}/merged"
        return _tried("the kernel has no overlay file system", ["unshare", "--mount", "sh", "-c", mount])


def _links() -> str | None:
    script = "ip link add one0 type veth peer name two0 && ip link add three0 type bridge && nft add table ip penstock"
    return _tried(
        "the kernel has no veth links, bridges or nf_tables", ["unshare", "--mount", "--net", "sh", "-c", script]
    )


def _cgroups() -> str | None:
    if host.is_cgroup_v2():
        have = frozenset((host.CGROUPS / "cgroup.subtree_control").read_text().split())
    else:
        have = frozenset(path.name for path in host.CGROUPS.iterdir()) if host.CGROUPS.is_dir() else frozenset()
    if missing := CGROUP_CONTROLLERS - have:
        return f"{host.CGROUPS} lacks the cgroup controllers {', '.join(sorted(missing))}"
    return None


def _tried(problem: str, command: list[str]) -> str | None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return f"{problem}: {done.stdout.strip() or f'code {done.returncode}'}" if done.returncode else None
