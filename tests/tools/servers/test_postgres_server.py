"""Postgres for tests: it starts, keeps its data after a kill, can be paused, and requires a password."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.tools.servers.commands import started
from tools.servers.postgres import PostgresServer

pytestmark = pytest.mark.postgres


def test_committed_data_survives_a_kill(tmp_path: Path) -> None:
    with PostgresServer(tmp_path) as server:
        with psycopg.connect(server.conninfo) as connection:
            connection.execute("create table kept as select 7 as n")
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.conninfo)
        server.restart()
        with psycopg.connect(server.conninfo) as connection:
            assert connection.execute("select n from kept").fetchone() == (7,)


def test_a_paused_server_does_not_respond_until_it_resumes(tmp_path: Path) -> None:
    with PostgresServer(tmp_path) as server:
        server.pause()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.conninfo, connect_timeout=2)
        server.resume()
        psycopg.connect(server.conninfo).close()
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(server.conninfo_of("admin", "wrong"))


def test_a_server_outlives_the_command_that_starts_it(tmp_path: Path) -> None:
    with started("postgres", tmp_path) as settings:
        user, password, port = settings["PGUSER"], settings["PGPASSWORD"], settings["PGPORT"]
        psycopg.connect(f"postgresql://{user}:{password}@127.0.0.1:{port}/postgres").close()


def test_a_standby_has_the_data_of_its_primary_and_refuses_writes(tmp_path: Path) -> None:
    with PostgresServer(tmp_path / "primary") as primary:
        with psycopg.connect(primary.conninfo) as connection:
            connection.execute("create table kept as select 7 as n")
        with (
            PostgresServer(tmp_path / "standby", standby_of=primary) as standby,
            psycopg.connect(standby.conninfo) as connection,
        ):
            assert connection.execute("select n from kept").fetchone() == (7,)
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                connection.execute("insert into kept values (8)")
