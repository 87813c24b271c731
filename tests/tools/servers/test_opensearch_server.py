"""OpenSearch for tests: it starts, keeps its data after a kill, and can be paused."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.tools.servers.commands import started
from tools.servers.opensearch import OpenSearchServer

pytestmark = pytest.mark.opensearch


def test_written_data_survives_a_kill_and_a_paused_server_does_not_respond(tmp_path: Path) -> None:
    with OpenSearchServer(tmp_path) as server:
        server.ask("PUT", "/kept/_doc/7", {"n": 1})
        server.kill()
        refused(server)
        server.restart()
        assert server.documents("kept") == {"7": {"n": 1}}
        server.pause()
        refused(server)
        server.resume()
        assert server.documents("kept") == {"7": {"n": 1}}


def refused(server: OpenSearchServer) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(server.url, timeout=2)


def test_a_server_outlives_the_command_that_starts_it(tmp_path: Path) -> None:
    with started("opensearch", tmp_path) as settings:
        assert httpx.get(settings["OPENSEARCH_URL"], timeout=5).json()["version"]["distribution"] == "opensearch"
