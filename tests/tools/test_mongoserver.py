"""The tests' MongoDB: it comes up, keeps what it has over a kill, and stands still when told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pymongo import MongoClient
from pymongo.errors import ConnectionFailure

from tools.mongoserver import MongoServer

pytestmark = pytest.mark.mongodb
ROOT = Path(__file__).resolve().parents[2]


def test_what_was_written_is_there_after_a_kill_and_nobody_answers_meanwhile(tmp_path: Path) -> None:
    with MongoServer(tmp_path) as server, server.client() as client:
        client["db"]["kept"].insert_one({"_id": 7})
        server.kill()
        refused(server)
        server.restart()
        assert list(client["db"]["kept"].find()) == [{"_id": 7}]
        server.pause()
        refused(server)
        server.resume()
        assert list(client["db"]["kept"].find()) == [{"_id": 7}]


def refused(server: MongoServer) -> None:
    with MongoClient(server.url, serverSelectionTimeoutMS=500) as client, pytest.raises(ConnectionFailure):
        client.admin.command("ping")


def test_a_server_of_the_command_line_outlives_it(tmp_path: Path) -> None:
    def command(verb: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, str(ROOT / "tools" / "mongoserver.py"), verb, "--state-dir", str(tmp_path)]
        return subprocess.run(program, capture_output=True, text=True, check=False)

    try:
        started = command("start")
        assert started.returncode == 0, started.stderr
        assert command("status").stdout == started.stdout
        told = dict(line.removeprefix("export ").split("=", 1) for line in started.stdout.splitlines() if "=" in line)
        with MongoClient(told["MONGODB_URL"], serverSelectionTimeoutMS=5000) as client:
            assert client.admin.command("ping")["ok"] == 1
    finally:
        command("stop")
    assert command("status").returncode == 1
