"""A real OpenSearch on this machine, for tests and development.

OpenSearch comes as jars (``mavenjars``) and runs as a single node, which is up in some ten seconds.

    with OpenSearchServer(tmp_path) as server:
        server.ask("PUT", "/means", {"mappings": {"dynamic": "strict"}})

From a shell: ``python tools/opensearchserver.py start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

if not __package__:  # run as a script: the package is beside this file's directory
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import httpx

from tools.errors import Unsupported
from tools.mavenjars import MavenJars
from tools.servercommand import ServerCommand
from tools.serverprocess import HOST, ServerProcess, free_port

JARS = MavenJars(Path(__file__).resolve().parent / "opensearchserver")
READY_TIMEOUT = 180.0
"""Seconds; a node needs ten on an idle machine."""
_PORTS = range(9201, 9300)
"""The runner takes no others."""


class OpenSearchServer(ServerProcess):
    """A node. ``settings`` go over those of ``opensearch.yml`` that are written here."""

    title = "OpenSearch"

    def __init__(self, root: Path, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(root)
        self.settings = dict(settings or {})

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> Self:
        jars = JARS.ensure()
        config = self.root / "node" / "config"
        config.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port(_PORTS)
        (config / "opensearch.yml").write_text(json.dumps(self._settings(), indent=1))  # which is YAML
        self._run(self._command(jars), self._answers, READY_TIMEOUT)
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

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=1s", timeout=3).is_success
        except httpx.TransportError:
            return False

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


def _start(options: argparse.Namespace) -> tuple[dict[str, str], Iterable[subprocess.Popen[bytes]]]:
    server = OpenSearchServer(options.state_dir).start()
    assert server.process is not None
    return {"OPENSEARCH_URL": server.url}, [server.process]


if __name__ == "__main__":
    sys.exit(ServerCommand("opensearchserver", "A real OpenSearch for development.", _start).run())
