"""MariaDB for tests: it starts, keeps its data after a kill, can be paused, and requires a password."""

from __future__ import annotations

from pathlib import Path

import pymysql
import pytest

from tests.tools.servers.commands import started
from tools.servers.base.server import HOST
from tools.servers.mariadb import MariaDbServer

pytestmark = pytest.mark.mariadb


def queried(server: MariaDbServer, statement: str, password: str = "") -> object:
    with pymysql.connect(
        host=HOST, port=server.port, user="admin", password=password or server.password, database="test",
        connect_timeout=2, read_timeout=2, autocommit=True,
    ) as connection:  # fmt: skip
        cursor = connection.cursor()
        cursor.execute(statement)
        return cursor.fetchall()


def test_committed_data_survives_a_kill(tmp_path: Path) -> None:
    with MariaDbServer(tmp_path) as server:
        queried(server, "create table kept as select 7 as n")
        server.kill()
        with pytest.raises(pymysql.OperationalError):
            queried(server, "select 1")
        server.restart()
        assert queried(server, "select n from kept") == ((7,),)


def test_a_paused_server_does_not_respond_until_it_resumes(tmp_path: Path) -> None:
    with MariaDbServer(tmp_path) as server:
        server.pause()
        with pytest.raises(pymysql.OperationalError):
            queried(server, "select 1")
        server.resume()
        assert queried(server, "select 1") == ((1,),)
        with pytest.raises(pymysql.OperationalError, match="Access denied"):
            queried(server, "select 1", "wrong")


def test_a_server_outlives_the_command_that_starts_it(tmp_path: Path) -> None:
    with started("mariadb", tmp_path) as settings:
        port, password = int(settings["MYSQL_TCP_PORT"]), settings["MYSQL_PWD"]
        pymysql.connect(host=HOST, port=port, user="admin", password=password).close()
