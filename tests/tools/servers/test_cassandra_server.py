"""Cassandra for tests: it starts, keeps its data after a kill, can be paused, and requires a password."""

from __future__ import annotations

from pathlib import Path

import pytest
from cassandra.cluster import Cluster, NoHostAvailable

from tests.tools.servers.commands import started
from tools.servers.base.server import HOST
from tools.servers.cassandra import CassandraServer

pytestmark = pytest.mark.cassandra
KEYSPACE = "CREATE KEYSPACE kept WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"


def test_written_data_survives_a_kill_and_a_paused_server_does_not_respond(tmp_path: Path) -> None:
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


def test_a_server_outlives_the_command_that_starts_it(tmp_path: Path) -> None:
    with (
        started("cassandra", tmp_path) as settings,
        Cluster([settings["CASSANDRA_HOST"]], port=int(settings["CASSANDRA_PORT"])) as cluster,
    ):
        cluster.connect()
