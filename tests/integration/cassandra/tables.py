"""A separate table for each test in a shared keyspace, and sinks for it."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from penstock.connectors.core.sink import WriterContext
from penstock.datastream.connectors.cassandra import CassandraTableSink, ClusterBuilder
from tools.servers.base.server import HOST
from tools.servers.cassandra import PASSWORD, USER, CassandraServer

KEYSPACE = "weather"
CREATE_KEYSPACE = f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
COLUMNS = "id int PRIMARY KEY, key text"


class Table:
    def __init__(self, server: CassandraServer, columns: str = COLUMNS) -> None:
        self.server = server
        server.execute(CREATE_KEYSPACE)
        self.name = f"{KEYSPACE}.t{uuid.uuid4().hex[:10]}"
        server.execute(f"CREATE TABLE {self.name} ({columns})")

    @property
    def cluster(self) -> ClusterBuilder:
        if not self.server.passwords:
            return ClusterBuilder(HOST, self.server.port)
        secret = Path(self.server.root, "superuser.password")
        secret.write_text(f"{PASSWORD}\n")
        return ClusterBuilder(HOST, self.server.port, USER, str(secret))

    def sink(self, *columns: str, **options: Any) -> CassandraTableSink:
        if "statement" in options:
            return CassandraTableSink(self.cluster, **options)
        return CassandraTableSink(self.cluster, self.name, columns or ("id", "key"), **options)

    def execute(self, statement: str) -> list[Any]:
        return self.server.execute(statement.format(self.name))

    def rows(self) -> dict[int, str]:
        return {row.id: row.key for row in self.execute("SELECT id, key FROM {}")}


def ends(sink: CassandraTableSink, job: str = "job", subtask: int = 0) -> tuple[Any, Any]:
    """Return a writer and a committer."""
    committer = sink.create_committer({}, job_id=job, uid="sink")
    return sink.create_writer(WriterContext(subtask, 2, 1, "sink", job), []), committer
