"""A real OpenSearch on this machine, for tests and development.

OpenSearch comes as jars (``mavenjars``) and runs as a single node, which is up in some ten seconds.

    with OpenSearchServer(tmp_path) as server:
        server.ask("PUT", "/means", {"mappings": {"dynamic": "strict"}})

From a shell: ``python tools/opensearchserver.py start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if not __package__:  # run as a script: the package is beside this file's directory
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import httpx

from tools.errors import NotRunning, Unsupported
from tools.mavenjars import MavenJars
from tools.servercommand import ServerCommand

if TYPE_CHECKING:
    from types import TracebackType

JARS = MavenJars(Path(__file__).resolve().parent / "opensearchserver")
HOST = "127.0.0.1"
READY_TIMEOUT = 180.0
"""Seconds; a node needs ten on an idle machine."""
_PORTS = range(9201, 9300)
"""The runner takes no others."""


class OpenSearchServer:
    """A node that lives as long as the ``with`` block, or between ``start`` and ``stop``.

    ``root`` holds the data and the log (``server.log``); starting again in the same root finds the same indices, under the same port.
    ``settings`` go over those of ``opensearch.yml`` that are written here.
    """

    def __init__(self, root: Path, settings: Mapping[str, Any] | None = None) -> None:
        self.root = Path(root)
        self.settings = dict(settings or {})
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> Self:
        """Start the node and wait until it answers.

        Raises ``BuildFailed`` when the jars cannot be had, ``NotRunning`` when it does not come up.
        """
        jars = JARS.ensure()
        config = self.root / "node" / "config"
        config.mkdir(parents=True, exist_ok=True)
        if not self.port:
            self.port = _free_port()
        (config / "opensearch.yml").write_text(json.dumps(self._settings(), indent=1))  # which is YAML
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command(jars),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.root,
            )
        self._await_ready()
        return self

    def _command(self, jars: Path) -> list[str]:
        java = shutil.which("java")
        if java is None:
            raise Unsupported("there is no java on the PATH", remedy="install a Java 17")
        return [
            java,
            "-Xms384m",
            "-Xmx384m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:ActiveProcessorCount=2",
            "-XX:+PerfDisableSharedMem",
            "-cp",
            f"{jars}/*",
            "org.codelibs.opensearch.runner.OpenSearchRunner",
            *("-basePath", str(self.root), "-confPath", str(self.root / "node" / "config")),
            *("-dataPath", str(self.root / "node" / "data"), "-logsPath", str(self.root / "node" / "logs")),
            *("-numOfNode", "1", "-clusterName", "penstock", "-useLogger"),
            *("-baseHttpPort", str(self.port - 1)),
        ]

    def _settings(self) -> dict[str, Any]:
        return {
            "cluster.name": "penstock",
            "node.name": "one",
            "discovery.type": "single-node",
            "network.host": HOST,
            "cluster.routing.allocation.disk.threshold_enabled": False,
            **self.settings,
        }

    def _await_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT
        while True:
            if self.process is None or self.process.poll() is not None or time.monotonic() > deadline:
                text = self.log.read_text(errors="replace")[-2500:]
                self.stop()
                raise NotRunning(f"OpenSearch did not come up on port {self.port}:\n{text}", remedy=f"see {self.log}")
            with suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=1s", timeout=3).is_success:
                    return
            time.sleep(0.1)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """What the server answers, as JSON. Raises ``httpx.HTTPStatusError`` for a refusal."""
        answer = httpx.request(method, self.url + path, json=body, timeout=30)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def documents(self, index: str) -> dict[str, Any]:
        """All documents of an index, at most 10,000, by their ids."""
        self.ask("POST", f"/{index}/_refresh")
        found = self.ask("POST", f"/{index}/_search", {"size": 10_000, "query": {"match_all": {}}})
        return {hit["_id"]: hit["_source"] for hit in found["hits"]["hits"]}

    def stop(self) -> None:
        """End the node; what it stored stays."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a process dies: at once; the next start recovers from the log."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.start()

    def pause(self) -> None:
        """Freeze it: connections stand, nothing is answered. It is frozen when this returns."""
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            raise NotRunning("OpenSearch does not run", remedy=f"start it first; its log is {self.log}")
        return self.process

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _free_port() -> int:
    """One that the runner takes."""
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise NotRunning(f"all ports from {_PORTS[0]} to {_PORTS[-1]} are taken", remedy="end the servers that have them")


def _start(options: argparse.Namespace) -> tuple[dict[str, str], Iterable[subprocess.Popen[bytes]]]:
    server = OpenSearchServer(options.state_dir).start()
    assert server.process is not None
    return {"OPENSEARCH_URL": server.url}, [server.process]


if __name__ == "__main__":
    sys.exit(ServerCommand("opensearchserver", "A real OpenSearch for development.", _start).run())
