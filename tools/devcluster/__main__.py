"""``python -m tools.devcluster``: the development cluster from a shell.

::

    python -m tools.devcluster build               its programs, which the first `up` would build
    python -m tools.devcluster up [--level control|node]
    python -m tools.devcluster load IMAGE...        a buildah image or an archive
    eval "$(python -m tools.devcluster kubeconfig --export)"
    python -m tools.devcluster kubectl -- get pods
    python -m tools.devcluster status
    python -m tools.devcluster down [--images]
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tools import processes
from tools.devcluster import binaries, plan
from tools.devcluster.cluster import Cluster, KubectlFailed
from tools.errors import ToolError

if TYPE_CHECKING:
    from tools.devcluster.plan import Level


def main(arguments: list[str] | None = None) -> int:
    """Run one verb and return the exit code. It is 1 if the verb failed, and for ``status`` if the cluster is down."""
    options = _parser().parse_args(arguments)
    level: Level = "control" if getattr(options, "level", "node") == "control" else "node"
    cluster = Cluster(options.name, level=level)
    try:
        return int(options.run(cluster, options))
    except KubectlFailed as error:
        print(error.stderr, end="", file=sys.stderr)
        return 1
    except ToolError as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        return 1


def _build(_cluster: Cluster, _options: argparse.Namespace) -> int:
    began = time.monotonic()
    print(f"{binaries.MODULE.ensure()} ({time.monotonic() - began:.1f} s)")
    return 0


def _up(cluster: Cluster, _options: argparse.Namespace) -> int:
    began = time.monotonic()
    cluster.up()
    print(f"cluster {cluster.name!r} is up ({time.monotonic() - began:.1f} s)")
    print(f"export KUBECONFIG={cluster.kubeconfig} PATH={cluster.plan.binaries}:$PATH")
    return 0


def _down(cluster: Cluster, options: argparse.Namespace) -> int:
    began = time.monotonic()
    cluster.down()
    if options.images:
        shutil.rmtree(plan.image_root(cluster.name), ignore_errors=True)
    print(f"cluster {cluster.name!r} is down ({time.monotonic() - began:.1f} s)")
    return 0


def _status(cluster: Cluster, _options: argparse.Namespace) -> int:
    found = plan.load(cluster.root)
    if found is None:
        print(f"cluster {cluster.name!r} is down")
        return 1
    cluster.level = found.level
    up = cluster.is_up()
    print(f"cluster {cluster.name!r}, level {found.level}, {found.server}: {'up' if up else 'does not respond'}")
    total = 0
    for name, pid in cluster.pids().items():
        share = processes.memory(pid)
        total += share
        print(f"  {name:26}{pid:>8}{share / 2**20:9.1f} MiB")
    print(f"  {'all':34}{total / 2**20:9.1f} MiB")
    print(f"logs: {found.logs}")
    if up and found.level == "node":
        print(cluster.kubectl("get", "nodes,pods", "--all-namespaces", "--output", "wide"), end="")
    return 0 if up else 1


def _load(cluster: Cluster, options: argparse.Namespace) -> int:
    for image in options.image:
        began = time.monotonic()
        names = cluster.load(Path(image) if Path(image).is_file() else image)
        print(f"{', '.join(names)} ({time.monotonic() - began:.1f} s)")
    return 0


def _kubeconfig(cluster: Cluster, options: argparse.Namespace) -> int:
    if options.export:
        print(f"export KUBECONFIG={cluster.kubeconfig} PATH={cluster.plan.binaries}:$PATH")
    else:
        print(cluster.kubeconfig)
    return 0


def _kubectl(cluster: Cluster, options: argparse.Namespace) -> int:
    program = cluster.plan.binaries / "kubectl"
    os.execve(program, ["kubectl", *_without_dashes(options.arguments)], cluster.environment())


def _exec(cluster: Cluster, options: argparse.Namespace) -> int:
    command = cluster.node_command(*_without_dashes(options.arguments))
    os.execvp(command[0], command)


def _without_dashes(arguments: list[str]) -> list[str]:
    return arguments[1:] if arguments[:1] == ["--"] else arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.devcluster", description="A real Kubernetes to develop on.")
    parser.add_argument("--name", default="dev", help="name of the cluster (dev)")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    verbs.add_parser("build", help="build the cluster's programs (once, takes minutes)").set_defaults(run=_build)

    up = verbs.add_parser("up", help="start the cluster; the first start builds its programs")
    up.add_argument("--level", choices=["control", "node"], default="node", help="control: no node, no pods, no root")
    up.set_defaults(run=_up)

    down = verbs.add_parser("down", help="stop the cluster and remove its state")
    down.add_argument("--images", action="store_true", help="also remove the loaded images")
    down.set_defaults(run=_down)

    verbs.add_parser("status", help="show the running components and their memory").set_defaults(run=_status)

    load = verbs.add_parser("load", help="load images into the cluster")
    load.add_argument("image", nargs="+", help="an image in buildah's store, or a docker or OCI archive")
    load.set_defaults(run=_load)

    kubeconfig = verbs.add_parser("kubeconfig", help="print the path of the administrator's kubeconfig")
    kubeconfig.add_argument("--export", action="store_true", help="print a line for a shell to evaluate instead")
    kubeconfig.set_defaults(run=_kubeconfig)

    for name, run, text in (("kubectl", _kubectl, "run kubectl"), ("exec", _exec, "run a program inside the node")):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("arguments", nargs=argparse.REMAINDER)
        verb.set_defaults(run=run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
