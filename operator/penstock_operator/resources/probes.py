"""How Kubernetes asks masters and workers whether they are alive and ready.

A job's image may be of the version before, or come back by a rollback: what is asked must make sense to it, too. A master's
REST API has always answered. Workers answer on a port of their own if their engine knows it, and images say so
(`PENSTOCK_PROBES`, set by the base image), so they are asked from within the container, by a command that can tell an engine
that answers nothing from one that does not answer.
"""

from __future__ import annotations

from typing import Any

from penstock_operator.resources.names import HEALTH_PORT

HEALTH_VARIABLE = "PENSTOCK_WORKER_HEALTH_PORT"
"""Tells a worker where to answer; engines that do not know it do not mind, as they would a key of `penstock.yaml`."""
KNOWN_VARIABLE = "PENSTOCK_PROBES"
"""Set by images whose engine answers: nobody at the port is a failure then, and not only silence or a no."""

_ASK = f"""\
import os, socket, sys
try:
    asked = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 4)
except ConnectionRefusedError:
    sys.exit("nobody answers" if os.environ.get("{KNOWN_VARIABLE}") else 0)
asked.settimeout(4)
asked.sendall(b"GET %s HTTP/1.0\\r\\n\\r\\n" % sys.argv[2].encode())
said = asked.recv(64)
sys.exit(0 if b" 200 " in said else f"{{sys.argv[2]}}: {{said.decode(errors='replace')}}")
"""


def master_probes() -> dict[str, Any]:
    """Ready means that REST answers and that it leads."""
    return {
        "startupProbe": _get("rest", "/healthz", 2, 150),
        "livenessProbe": _get("rest", "/healthz", 10, 6),
        "readinessProbe": _get("rest", "/readyz", 2, 3),
    }


def worker_probes() -> dict[str, Any]:
    """Ready means that it is registered with a master, so a worker that waits for one is alive and not ready."""
    return {
        "startupProbe": _execute("/healthz", 2, 150),
        "livenessProbe": _execute("/healthz", 20, 6),
        "readinessProbe": _execute("/readyz", 5, 3),
    }


def ask_worker(port: int, path: str) -> list[str]:
    """The command, for Python without its site packages: it ends within 50 ms of CPU time."""
    return ["python3", "-ISc", _ASK, str(port), path]


def _get(port: str, path: str, period: int, failures: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": port}, **_timing(period, failures)}


def _execute(path: str, period: int, failures: int) -> dict[str, Any]:
    return {"exec": {"command": ask_worker(HEALTH_PORT, path)}, **_timing(period, failures)}


def _timing(period: int, failures: int) -> dict[str, Any]:
    return {"timeoutSeconds": 5, "periodSeconds": period, "failureThreshold": failures}
