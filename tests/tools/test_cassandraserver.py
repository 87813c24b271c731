"""The tests' Cassandra: it comes up, keeps what it has over a kill, stands still when told, and lets nobody in without a password."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cassandra.cluster import Cluster, NoHostAvailable

from tools.cassandraserver import HOST, CassandraServer

pytestmark = pytest.mark.cassandra
ROOT = Path(__file__).resolve().parents[2]
KEYSPACE = "CREATE KEYSPACE kept WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"


def test_what_was_written_is_there_after_a_kill_and_nobody_answers_meanwhile(tmp_path: Path) -> None:
    with CassandraServer(tmp_path, passwords=True) as server:
        server.execute(KEYSPACE)
        server.execute("CREATE TABLE kept.it (id int PRIMARY KEY)")
        server.execute("INSERT INTO kept.it (id) VALUES (7)")
        server.kill()
        refused(server)
        server.restart()
        assert [row.id for row in server.execute("SELECT id FROM kept.it")] == [7]
        refused(server)  # without a password
        server.pause()
        refused(server)
        server.resume()
        assert [row.id for row in server.execute("SELECT id FROM kept.it")] == [7]


def refused(server: CassandraServer) -> None:
    cluster = Cluster([HOST], port=server.port, connect_timeout=2, control_connection_timeout=2)
    with pytest.raises(NoHostAvailable):
        cluster.connect()
    cluster.shutdown()


def test_a_server_of_the_command_line_outlives_it(tmp_path: Path) -> None:
    def command(verb: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, str(ROOT / "tools" / "cassandraserver.py"), verb, "--state-dir", str(tmp_path)]
        return subprocess.run(program, capture_output=True, text=True, check=False)

    try:
        started = command("start")
        assert started.returncode == 0, started.stderr
        assert command("status").stdout == started.stdout
        told = dict(line.removeprefix("export ").split("=", 1) for line in started.stdout.splitlines() if "=" in line)
        with Cluster([told["CASSANDRA_HOST"]], port=int(told["CASSANDRA_PORT"])) as cluster:
            cluster.connect()
    finally:
        command("stop")
    assert command("status").returncode == 1
