"""Clients of Flink work with Penstock: every call of PyPI's `flink-rest-client` for a supported feature."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.rest.server import RestServer
from tests.unit.rest.fake_gateway import JOB_ID, FakeGateway

WHEEL = "flink-rest-client==1.0.8"
PROGRAM = Path(__file__).parent / "programs" / "flink_rest_client_calls.py"

pytestmark = pytest.mark.slow


def test_every_call_succeeds(tmp_path: Path) -> None:
    fetch: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        tmp_path,
        WHEEL,
    ]
    subprocess.run(fetch, check=True, timeout=120)
    [wheel] = tmp_path.glob("*.whl")
    server = RestServer(FakeGateway(), "127.0.0.1", 0).start()
    try:
        command: list[str | Path] = [sys.executable, PROGRAM, wheel, str(server.port), JOB_ID]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    finally:
        server.stop()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}
