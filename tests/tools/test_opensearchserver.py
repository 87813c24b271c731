"""The tests' OpenSearch: it comes up, keeps what it has over a kill, and stands still when told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tools.opensearchserver import OpenSearchServer

pytestmark = pytest.mark.opensearch
ROOT = Path(__file__).resolve().parents[2]


def test_what_was_written_is_there_after_a_kill_and_nobody_answers_meanwhile(tmp_path: Path) -> None:
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


def test_a_server_of_the_command_line_outlives_it(tmp_path: Path) -> None:
    def command(verb: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, str(ROOT / "tools" / "opensearchserver.py"), verb, "--state-dir", str(tmp_path)]
        return subprocess.run(program, capture_output=True, text=True, check=False)

    try:
        started = command("start")
        assert started.returncode == 0, started.stderr
        assert command("status").stdout == started.stdout
        told = dict(line.removeprefix("export ").split("=", 1) for line in started.stdout.splitlines() if "=" in line)
        assert httpx.get(told["OPENSEARCH_URL"], timeout=5).json()["version"]["distribution"] == "opensearch"
    finally:
        command("stop")
    assert command("status").returncode == 1
