"""The tests' MariaDB: it comes up, keeps what it has over a kill, stands still when told, and lets nobody in without a password."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pymysql
import pytest

from tools.mariadbserver import HOST, MariaDbServer

pytestmark = pytest.mark.mariadb
ROOT = Path(__file__).resolve().parents[2]


def asked(server: MariaDbServer, statement: str, password: str = "") -> object:
    with pymysql.connect(
        host=HOST, port=server.port, user="admin", password=password or server.password, database="test",
        connect_timeout=2, read_timeout=2, autocommit=True,
    ) as connection:  # fmt: skip
        cursor = connection.cursor()
        cursor.execute(statement)
        return cursor.fetchall()


def test_what_was_committed_is_there_after_a_kill(tmp_path: Path) -> None:
    with MariaDbServer(tmp_path) as server:
        asked(server, "create table kept as select 7 as n")
        server.kill()
        with pytest.raises(pymysql.OperationalError):
            asked(server, "select 1")
        server.restart()
        assert asked(server, "select n from kept") == ((7,),)


def test_a_paused_server_answers_nothing_until_it_goes_on(tmp_path: Path) -> None:
    with MariaDbServer(tmp_path) as server:
        server.pause()
        with pytest.raises(pymysql.OperationalError):
            asked(server, "select 1")
        server.resume()
        assert asked(server, "select 1") == ((1,),)
        with pytest.raises(pymysql.OperationalError, match="Access denied"):
            asked(server, "select 1", "wrong")


def test_a_server_of_the_command_line_outlives_it(tmp_path: Path) -> None:
    def command(verb: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, str(ROOT / "tools" / "mariadbserver.py"), verb, "--state-dir", str(tmp_path)]
        return subprocess.run(program, capture_output=True, text=True, check=False)

    try:
        started = command("start")
        assert started.returncode == 0, started.stderr
        assert command("status").stdout == started.stdout
        told = dict(line.removeprefix("export ").split("=", 1) for line in started.stdout.splitlines() if "=" in line)
        port, password = int(told["MYSQL_TCP_PORT"]), told["MYSQL_PWD"]
        pymysql.connect(host=HOST, port=port, user="admin", password=password).close()
    finally:
        command("stop")
    assert command("status").returncode == 1
