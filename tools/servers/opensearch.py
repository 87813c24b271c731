"""A real OpenSearch on this machine, for tests and development.

OpenSearch comes as jars (``mavenjars``). It runs as a single node and starts in about ten seconds.

    with OpenSearchServer(tmp_path) as server:
        server.ask("PUT", "/means", {"mappings": {"dynamic": "strict"}})

From a shell: ``python -m tools.servers opensearch start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tools.mavenjars import MavenJars
from tools.servers.base.probes import http_succeeds
from tools.servers.base.process import ServerProcess
from tools.servers.base.programs import java
from tools.servers.base.server import HOST

JARS = MavenJars(Path(__file__).resolve().parent / "artifacts" / "opensearch")


class OpenSearchServer(ServerProcess):
    """A single node. ``settings`` override the entries of ``opensearch.yml`` that this module writes."""

    title = "OpenSearch"
    patience = 180.0
    """Seconds; a node needs ten on an idle machine."""
    ports = range(9201, 9300)
    """OpenSearch's runner accepts no other ports."""

    def __init__(self, root: Path, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(root)
        self.settings = dict(settings or {})

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def exports(self) -> dict[str, str]:
        return {"OPENSEARCH_URL": self.url}

    def _command(self) -> list[str]:
        node = self.root / "node"
        (node / "config").mkdir(parents=True, exist_ok=True)
        (node / "config" / "opensearch.yml").write_text(json.dumps(self._settings(), indent=1))  # JSON is valid YAML
        return [
            *java("384m", "-Xms384m", "-cp", f"{JARS.ensure()}/*"),
            "org.codelibs.opensearch.runner.OpenSearchRunner",
            *("-basePath", str(self.root), "-confPath", str(node / "config")),
            *("-dataPath", str(node / "data"), "-logsPath", str(node / "logs")),
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

    def _responds(self) -> bool:
        return http_succeeds(self.port, "/_cluster/health?wait_for_status=yellow&timeout=1s")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the JSON of the response. Raise ``httpx.HTTPStatusError`` for an error status."""
        response = httpx.request(method, self.url + path, json=body, timeout=30)
        response.raise_for_status()
        return response.json() if response.content else None

    def documents(self, index: str) -> dict[str, Any]:
        """Return all documents of an index, at most 10,000, by their ids."""
        self.ask("POST", f"/{index}/_refresh")
        found = self.ask("POST", f"/{index}/_search", {"size": 10_000, "query": {"match_all": {}}})
        return {hit["_id"]: hit["_source"] for hit in found["hits"]["hits"]}
