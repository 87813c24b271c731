"""The description of one cluster: the paths of its files, its addresses and its ports. Pure data without side effects.

Several clusters may run on one machine at the same time. Each node-level cluster has a *number* that selects its
network: link, node address, pod and Service ranges. A control-level cluster only has ports on 127.0.0.1.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tools.errors import ToolError
from tools.gobuild import cache_root

Level = Literal["control", "node"]

NODE_NAME = "node1"
DOMAIN = "cluster.local"
LONGEST_ROOT = 107 - len("/containerd.sock")
"""The bytes that remain for the directory in the address of a unix socket (``man 7 unix``)."""

NUMBERS = range(16)
"""The numbers of node-level clusters on one machine. The address plan limits them."""


@dataclass(frozen=True)
class Ports:
    """The ports of the control plane."""

    api: int = 6443
    etcd: int = 2379
    etcd_peer: int = 2380
    controller_manager: int = 10257
    scheduler: int = 10259


@dataclass(frozen=True)
class Plan:
    """One cluster. ``root`` holds its state, and ``down`` removes it. ``images`` is containerd's directory, and ``down`` keeps it."""

    name: str
    level: Level
    root: Path
    images: Path
    binaries: Path
    number: int = 0
    ports: Ports = Ports()

    @property
    def link(self) -> str:
        """The host's end of the link to the node, and the name of the pods' parent cgroup."""
        return f"penstock-dev{self.number}"

    @property
    def host_address(self) -> str:
        """The address of the host for pods."""
        return f"10.231.{self.number}.1" if self.level == "node" else "127.0.0.1"

    @property
    def node_address(self) -> str:
        """The address of the node for the host."""
        return f"10.231.{self.number}.2" if self.level == "node" else "127.0.0.1"

    @property
    def pod_range(self) -> str:
        """The addresses of the pods."""
        return f"10.244.{self.number}.0/24"

    @property
    def service_range(self) -> str:
        """The addresses of the Services. The first one is the API server's."""
        return f"10.{96 + self.number}.0.0/16"

    @property
    def service_address(self) -> str:
        """The address of the API server for pods."""
        return f"10.{96 + self.number}.0.1"

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://{self.node_address}:{self.ports.api}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.root / "kubeconfig"

    @property
    def conf(self) -> Path:
        """The configuration files of the components."""
        return self.root / "conf"

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.root / "pki"

    @property
    def logs(self) -> Path:
        """One log file per component."""
        return self.root / "log"

    @property
    def containerd_socket(self) -> Path:
        """The socket of containerd, for the kubelet and for the host."""
        return self.root / "containerd.sock"

    @property
    def store_ready(self) -> Path:
        """A file that appears when containerd accepts requests of the kubelet. The kubelet starts after it."""
        return self.root / "store.ready"

    @property
    def file(self) -> Path:
        """The file of the plan."""
        return self.root / "plan.json"

    def save(self) -> None:
        """Save the plan, so that other processes and a later ``down`` find it."""
        self.file.write_text(json.dumps(dataclasses.asdict(self), default=str, indent=1))


def load(root: Path) -> Plan | None:
    """Return the plan of the cluster whose state is in ``root``, or None if it does not exist."""
    try:
        raw = json.loads((root / "plan.json").read_text())
    except FileNotFoundError:
        return None
    paths = {name: Path(raw[name]) for name in ("root", "images", "binaries")}
    return Plan(name=raw["name"], level=raw["level"], number=raw["number"], ports=Ports(**raw["ports"]), **paths)


def state_root(name: str) -> Path:
    """Return the state directory of the cluster ``name``."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", name):
        raise ToolError(f"{name!r} is not a valid cluster name", remedy="use lower-case letters, digits and hyphens")
    configured = os.environ.get("PENSTOCK_CLUSTER_STATE")
    root = (Path(configured) if configured else cache_root() / "clusters").resolve() / name
    if len(str(root)) > LONGEST_ROOT:
        raise ToolError(
            f"the path {root} is too long for the address of a socket in it",
            remedy="set PENSTOCK_CLUSTER_STATE to a shorter path",
        )
    return root


def image_root(name: str) -> Path:
    """Return the directory of the images of the cluster ``name``. They outlive it, because loading takes longer than ``up``."""
    return cache_root().resolve() / "containerd" / name
