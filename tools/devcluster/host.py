"""What a node-level cluster changes on the machine, and how each change is undone.

Three things: a cgroup that the pods are in, a link to the node with routes over it, and directories that must exist to
be covered inside the node. Every function here can be called again after half of it was done: ``up`` may be killed at
any point, and ``down`` must still leave the machine as it was.
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
"""One file per number in use, holding the state directory of the cluster that has it; gone with the last one."""

CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS_V1 = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")


# ---- numbers: which network a cluster gets


def claim(plan: Plan) -> Plan:
    """The plan, saved, with a number that no other cluster has and whose addresses the machine does not use.

    Raises ``Unsupported`` when all are taken.
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
        remedy="take one down, or free a pair of the ranges 10.96-111.0.0/16 and 10.244.0-15.0/24",
    )


def release(plan: Plan) -> None:
    """Give the cluster's number back, and with the last one all that the clusters have in common."""
    if not CLAIMS.exists():
        return
    with _claims() as claims:
        mark = claims / str(plan.number)
        if mark.exists() and mark.read_text() == str(plan.root):
            mark.unlink()
        if not any((claims / str(number)).exists() for number in NUMBERS):
            _remove_directories(claims)


def clashing_route(plan: Plan) -> str | None:
    """A route of the machine into the plan's ranges over another link than the plan's own."""
    ranges = [ipaddress.ip_network(text) for text in (plan.pod_range, plan.service_range)]
    ranges.append(ipaddress.ip_network(f"{plan.host_address}/30", strict=False))
    for route in json.loads(_output("ip", "-json", "-4", "route", "show", "table", "all")):
        destination = route["dst"]
        if destination == "default" or route.get("dev") == plan.link:
            continue
        network = ipaddress.ip_network(destination, strict=False)
        # a route as wide as a whole private range is a default in other words
        if network.prefixlen > 8 and any(network.overlaps(own) for own in ranges):
            return str(destination)
    return None


@contextmanager
def _claims() -> Iterator[Path]:
    # the lock is on the directory above: a lock file would have to be removed, and cannot be while others wait for it
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
    """Make the directories that nodes cover and that the machine does not have, and remember which.

    They belong to all clusters together: to remove one that is covered in another node would uncover it there.
    """
    made = [directory for directory in OWN_DIRECTORIES if not directory.exists()]
    if made:
        with (claims / "made").open("a") as record:
            record.writelines(f"{directory}\n" for directory in made)
    for directory in made:
        directory.mkdir(parents=True)


def _remove_directories(claims: Path) -> None:
    """Remove the directories that were made, unless something is in them by now."""
    record = claims / "made"
    if record.exists():
        for directory in record.read_text().split():
            with suppress(OSError):
                Path(directory).rmdir()
        record.unlink()


# ---- cgroups


def make_cgroups(plan: Plan) -> None:
    """Make the group that the pods' groups are under, in each hierarchy that the machine has."""
    if is_cgroup_v2():
        group = CGROUPS / plan.link
        group.mkdir(exist_ok=True)
        enabled = " ".join(f"+{name}" for name in (group / "cgroup.controllers").read_text().split())
        (group / "cgroup.subtree_control").write_text(enabled)
        return
    for controller in CONTROLLERS_V1:
        hierarchy = CGROUPS / controller
        if not hierarchy.is_dir():
            continue
        group = hierarchy / plan.link
        group.mkdir(exist_ok=True)
        if controller == "cpuset":
            # a new group has none, and takes no process until it has some
            for name in ("cpuset.cpus", "cpuset.mems"):
                (group / name).write_text((hierarchy / name).read_text())


def remove_cgroups(plan: Plan) -> None:
    """Remove the groups of the pods; the kernel may take a moment to empty them."""
    hierarchies = [CGROUPS] if is_cgroup_v2() else [path for path in CGROUPS.iterdir() if path.is_dir()]
    for hierarchy in hierarchies:
        for directory, _, _ in os.walk(hierarchy / plan.link, topdown=False):
            _remove_directory(Path(directory), patience=10.0)


def is_cgroup_v2() -> bool:
    """Whether the machine has the unified hierarchy alone."""
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
    """Remove the link; its address and its routes go with it."""
    if (Path("/sys/class/net") / plan.link).exists():
        subprocess.run(["ip", "link", "delete", plan.link], check=False, capture_output=True)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
