"""Clients of Flink work with Penstock: every call of PyPI's `flink-rest-client` for a supported feature."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.rest.server import RestServer
from tests.integration.engine.programs.sessions.session_programs import ENDLESS
from tests.session_process import SessionProcess
from tests.unit.rest.fake_gateway import JOB_ID, FakeGateway

WHEEL = "flink-rest-client==1.0.8"
PROGRAM = Path(__file__).parent / "programs" / "flink_rest_client_calls.py"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    fetch: list[str | Path] = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, WHEEL]
    subprocess.run(fetch, check=True, timeout=120)
    [found] = folder.glob("*.whl")
    return found


def check_calls(wheel: Path, port: int, *arguments: str) -> None:
    command: list[str | Path] = [sys.executable, PROGRAM, wheel, str(port), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}, done.stdout


def test_every_call_succeeds(wheel: Path) -> None:
    server = RestServer(FakeGateway(), "127.0.0.1", 0).start()
    try:
        check_calls(wheel, server.port, "job", JOB_ID)
    finally:
        server.stop()


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_every_call_succeeds_on_a_session(wheel: Path, tmp_path: Path) -> None:
    session = SessionProcess(tmp_path)
    session.start()
    program = tmp_path / "counts.py"
    program.write_text(ENDLESS.replace("sys.argv[1]", "sys.argv[-1]"))
    try:
        port = session.url.rsplit(":", 1)[1]
        check_calls(wheel, int(port), "session", str(program), f"{tmp_path}/kept", session.token)
        assert session.process is not None
        assert session.process.wait(60) == 0
    finally:
        session.stop()
