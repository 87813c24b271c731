"""Liveness, readiness and startup probes of masters and workers.

The image of a job may have an older version of the engine, also after a rollback. So the probes must work with older
versions:

- The REST API of the master has always served its probes.
- A worker serves probes on a separate port, if its engine supports that. The base image then sets `PENSTOCK_PROBES`.

The probe of a worker is a command inside the container. It distinguishes an engine without this feature from an
engine that does not respond.
"""

from __future__ import annotations

from typing import Any

from penstock_operator.resources.names import HEALTH_PORT

HEALTH_VARIABLE = "PENSTOCK_WORKER_HEALTH_PORT"
"""Environment variable with the port of a worker's probes. An engine without this feature ignores the variable, but
would refuse an unknown key of `penstock.yaml`.
"""
KNOWN_VARIABLE = "PENSTOCK_PROBES"
"""Environment variable that images set if their engine serves the probes. In such an image, a refused connection is a
failure too.
"""

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


def master_probes(*, tls: bool = False) -> dict[str, Any]:
    """Return the probes of a master. A master is ready when REST responds and the master leads. The kubelet does not verify
    the certificate.
    """
    return {
        "startupProbe": _get("/healthz", 2, 150, tls=tls),
        "livenessProbe": _get("/healthz", 10, 6, tls=tls),
        "readinessProbe": _get("/readyz", 2, 3, tls=tls),
    }


def worker_probes() -> dict[str, Any]:
    """Return the probes of a worker. A worker is ready when it is registered with a master. While it waits for a
    master, it is alive but not ready.
    """
    return {
        "startupProbe": _execute("/healthz", 2, 150),
        "livenessProbe": _execute("/healthz", 20, 6),
        "readinessProbe": _execute("/readyz", 5, 3),
    }


def worker_probe_command(port: int, path: str) -> list[str]:
    """Return the probe's command, which uses Python without its site packages. It needs less than 50 ms of CPU time."""
    return ["python3", "-ISc", _ASK, str(port), path]


def _get(path: str, period: int, failures: int, *, tls: bool) -> dict[str, Any]:
    scheme = {"scheme": "HTTPS"} if tls else {}
    return {"httpGet": {"path": path, "port": "rest", **scheme}, **_timing(period, failures)}


def _execute(path: str, period: int, failures: int) -> dict[str, Any]:
    return {"exec": {"command": worker_probe_command(HEALTH_PORT, path)}, **_timing(period, failures)}


def _timing(period: int, failures: int) -> dict[str, Any]:
    return {"timeoutSeconds": 5, "periodSeconds": period, "failureThreshold": failures}
