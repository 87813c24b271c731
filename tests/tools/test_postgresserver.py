"""The tests' Postgres: it comes up, keeps what it has over a kill, stands still when told, and lets nobody in without a password."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tools.postgresserver import PostgresServer

pytestmark = pytest.mark.postgres
ROOT = Path(__file__).resolve().parents[2]


def test_what_was_committed_is_there_after_a_kill(tmp_path: Path) -> None:
    with PostgresServer(tmp_path) as server:
        with psycopg.connect(server.conninfo) as connection:
            connection.execute("create table kept as select 7 as n")
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.conninfo)
        server.restart()
        with psycopg.connect(server.conninfo) as connection:
            assert connection.execute("select n from kept").fetchone() == (7,)


def test_a_paused_server_answers_nothing_until_it_goes_on(tmp_path: Path) -> None:
    with PostgresServer(tmp_path) as server:
        server.pause()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.conninfo, connect_timeout=2)
        server.resume()
        psycopg.connect(server.conninfo).close()
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(server.conninfo_of("admin", "wrong"))


def test_a_server_of_the_command_line_outlives_it(tmp_path: Path) -> None:
    def command(verb: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, str(ROOT / "tools" / "postgresserver.py"), verb, "--state-dir", str(tmp_path)]
        return subprocess.run(program, capture_output=True, text=True, check=False)

    try:
        started = command("start")
        assert started.returncode == 0, started.stderr
        assert command("status").stdout == started.stdout
        told = dict(line.removeprefix("export ").split("=", 1) for line in started.stdout.splitlines() if "=" in line)
        user, password, port = told["PGUSER"], told["PGPASSWORD"], told["PGPORT"]
        psycopg.connect(f"postgresql://{user}:{password}@127.0.0.1:{port}/postgres").close()
    finally:
        command("stop")
    assert command("status").returncode == 1
