"""Cassandra in the conformance tests: jobs from files to a table, with and without a write-ahead log."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster

from penstock.connectors.cassandra.committer import HeldRowsCommitter
from penstock.connectors.cassandra.writer import DirectWriter
from penstock.datastream.connectors.cassandra import CassandraTableSink, ClusterBuilder
from tests.integration.cassandra.tables import CREATE_KEYSPACE, KEYSPACE
from tests.integration.connectors.connector import Call, Connector
from tools.servers.base.server import HOST
from tools.servers.cassandra import PASSWORD, USER, CassandraServer


class CassandraConnector(Connector):
    """The table `t…`. An UPDATE without a value deletes its row. `address` is the server's port."""

    name = "cassandra"
    server = "cassandra"
    calls: ClassVar[dict[str, Call]] = {"after flush": Call(DirectWriter, "prepare_commit")}
    is_keyed = True
    refused = "poison"
    write_ahead: ClassVar[bool] = False

    def __init__(self, folder: Path, address: str = "") -> None:
        super().__init__(folder, address)
        self._secret = folder / "password"
        self._table = f"{KEYSPACE}.t{self.id}"

    @classmethod
    def address_of(cls, server: Any) -> str:
        return str(server.port)

    @classmethod
    def own_server(cls, folder: Path, ids: list[str]) -> Any:
        return CassandraServer(folder / "server", passwords=True)

    def sink(self) -> Any:
        cluster = ClusterBuilder(HOST, int(self.address), USER, str(self._secret))
        statement = f"UPDATE {self._table} SET key = ? WHERE id = ?"
        return CassandraTableSink(cluster, statement=statement, write_ahead=self.write_ahead, patience=5_000)

    def record_of(self, number: Any, text: str) -> Any:
        return (text, number)

    def deletion_of(self, number: int) -> Any:
        return (None, number)

    def set_up(self) -> None:
        super().set_up()
        self._secret.write_text(PASSWORD)
        self._execute(CREATE_KEYSPACE)
        self._execute(f"CREATE TABLE {self._table} (id int PRIMARY KEY, key text)")

    def rows(self) -> list[tuple[int, str]]:
        return [(row.id, row.key) for row in self._execute(f"SELECT id, key FROM {self._table}")]

    def _execute(self, statement: str) -> list[Any]:
        """Run a statement on a new connection."""
        user = PlainTextAuthProvider(USER, PASSWORD)
        with Cluster([HOST], port=int(self.address), auth_provider=user, protocol_version=4) as cluster:
            return list(cluster.connect().execute(statement, timeout=30))


class CassandraWriteAheadConnector(CassandraConnector):
    name = "cassandra-write-ahead"
    calls = {
        "before commit": Call(HeldRowsCommitter, "commit", is_before=True),
        "within commit": Call(HeldRowsCommitter, "_send"),
        "after commit": Call(HeldRowsCommitter, "commit"),
    }
    write_ahead = True
