"""The changes that a node-level cluster makes on the machine, and how to revert each of them.

The changes are a cgroup for the pods and a link to the node with routes over it. Some directories must also exist so
that the node can mount its own over them. Every function here can be called again after an interruption: ``up`` can be
killed at any point, and ``down`` must still restore the machine.
"""

from __future__ import annotations

import fcntl
import ipaddress
import json
import os
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tools.devcluster.node import OWN_DIRECTORIES
from tools.devcluster.plan import NUMBERS, Plan, load
from tools.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

CLAIMS = Path("/run/penstock-devcluster")
"""One file per number in use, with the state directory of its cluster. The directory is removed with the last file."""

CGROUPS = Path("/sys/fs/cgroup")
SHARES_OF_CORE_V1, WEIGHT_OF_CORE_V2 = 1024, 100
"""The weight of one process of normal priority."""
CONTROLLERS_V1 = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")


# ---- numbers: the network of a cluster


def claim(plan: Plan) -> Plan:
    """Return the plan, saved, with a number that no other cluster has and whose addresses the machine does not use.

    Raises ``Unsupported`` if all numbers are taken.
    """
    with _claims() as claims:
        taken: list[str] = []
        for number in NUMBERS:
            mark = claims / str(number)
            candidate = replace(plan, number=number)
            if mark.exists() and load(Path(mark.read_text())) is not None:
                taken.append(f"{number}: by the cluster in {mark.read_text()}")
            elif clash := clashing_route(candidate):
                taken.append(f"{number}: the machine has a route to {clash}")
            else:
                mark.write_text(str(plan.root))
                candidate.save()
                _make_directories(claims)
                return candidate
    raise Unsupported(
        "no network is left for another cluster:\n  " + "\n  ".join(taken),
        remedy="stop a cluster, or free a pair of the ranges 10.96-111.0.0/16 and 10.244.0-15.0/24",
    )


def release(plan: Plan) -> None:
    """Release the cluster's number. If no other number is in use, remove everything that the clusters share."""
    if not CLAIMS.exists():
        return
    with _claims() as claims:
        mark = claims / str(plan.number)
        if mark.exists() and mark.read_text() == str(plan.root):
            mark.unlink()
        if not any((claims / str(number)).exists() for number in NUMBERS):
            _remove_directories(claims)


def clashing_route(plan: Plan) -> str | None:
    """Return a route of the machine into the plan's ranges over another link than the plan's, or None."""
    ranges = [ipaddress.ip_network(text) for text in (plan.pod_range, plan.service_range)]
    ranges.append(ipaddress.ip_network(f"{plan.host_address}/30", strict=False))
    for route in json.loads(_output("ip", "-json", "-4", "route", "show", "table", "all")):
        destination = route["dst"]
        if destination == "default" or route.get("dev") == plan.link:
            continue
        network = ipaddress.ip_network(destination, strict=False)
        # a route as wide as a whole private range works like a default route
        if network.prefixlen > 8 and any(network.overlaps(own) for own in ranges):
            return str(destination)
    return None


@contextmanager
def _claims() -> Iterator[Path]:
    # The lock is on the parent directory. A lock file would have to be removed, which is unsafe while other processes wait for it.
    handle = os.open(CLAIMS.parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        CLAIMS.mkdir(mode=0o700, exist_ok=True)
        yield CLAIMS
    finally:
        with suppress(OSError):
            CLAIMS.rmdir()
        os.close(handle)


def _make_directories(claims: Path) -> None:
    """Create the missing directories over which nodes mount their own, and record them.

    All clusters share these directories. Removing a directory would also remove the mounts that other nodes have over
    it.
    """
    made = [directory for directory in OWN_DIRECTORIES if not directory.exists()]
    if made:
        with (claims / "made").open("a") as record:
            record.writelines(f"{directory}\n" for directory in made)
    for directory in made:
        directory.mkdir(parents=True)


def _remove_directories(claims: Path) -> None:
    """Remove the directories that this module made, unless they have content."""
    record = claims / "made"
    if record.exists():
        for directory in record.read_text().split():
            with suppress(OSError):
                Path(directory).rmdir()
        record.unlink()


# ---- cgroups


def make_cgroups(plan: Plan) -> None:
    """Create the parent cgroup of the pods in each hierarchy of the machine.

    Its weight is that of the pods of a real node: one process of normal priority for each core. If the weight were the default, all
    pods together would get as much CPU time as one other process of the machine.
    """
    cores = os.cpu_count() or 1
    if is_cgroup_v2():
        group = CGROUPS / plan.link
        group.mkdir(exist_ok=True)
        enabled = " ".join(f"+{name}" for name in (group / "cgroup.controllers").read_text().split())
        (group / "cgroup.subtree_control").write_text(enabled)
        (group / "cpu.weight").write_text(str(WEIGHT_OF_CORE_V2 * cores))
        return
    for controller in CONTROLLERS_V1:
        hierarchy = CGROUPS / controller
        if not hierarchy.is_dir():
            continue
        group = hierarchy / plan.link
        group.mkdir(exist_ok=True)
        if controller == "cpu":
            (group / "cpu.shares").write_text(str(SHARES_OF_CORE_V1 * cores))
        if controller == "cpuset":
            # a new cpuset group is empty, and accepts no process until its values are set
            for name in ("cpuset.cpus", "cpuset.mems"):
                (group / name).write_text((hierarchy / name).read_text())


def remove_cgroups(plan: Plan) -> None:
    """Remove the cgroups of the pods. The kernel can take a moment to empty them."""
    hierarchies = [CGROUPS] if is_cgroup_v2() else [path for path in CGROUPS.iterdir() if path.is_dir()]
    for hierarchy in hierarchies:
        for directory, _, _ in os.walk(hierarchy / plan.link, topdown=False):
            _remove_directory(Path(directory), patience=10.0)


def is_cgroup_v2() -> bool:
    """Return whether the machine has only the unified hierarchy (cgroup v2)."""
    return (CGROUPS / "cgroup.controllers").exists()


def _remove_directory(directory: Path, *, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


# ---- the link


def make_link(plan: Plan, init: int) -> None:
    """Connect the host with the network namespace of process ``init``, and route pods and Services over it."""
    remove_link(plan)
    _output("ip", "link", "add", plan.link, "type", "veth", "peer", "name", "eth0", "netns", str(init))
    _output("ip", "address", "add", f"{plan.host_address}/30", "dev", plan.link)
    _output("ip", "link", "set", plan.link, "up")
    for destination in (plan.pod_range, plan.service_range):
        _output("ip", "route", "replace", destination, "via", plan.node_address)


def remove_link(plan: Plan) -> None:
    """Remove the link. The kernel removes its address and routes with it."""
    if (Path("/sys/class/net") / plan.link).exists():
        subprocess.run(["ip", "link", "delete", plan.link], check=False, capture_output=True)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
