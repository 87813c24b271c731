"""Cassandra: a node; its driver without Penstock."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.connectors import job
from benchmarks.connectors.case import Case
from benchmarks.connectors.cost import Cost, timed
from benchmarks.connectors.records import FIELDS, expect, rows
from penstock.datastream.connectors.cassandra import CassandraTableSink, ClusterBuilder
from tools.servers.base.server import HOST
from tools.servers.cassandra import CassandraServer

IN_FLIGHT = 128
"""Concurrent requests, as in Penstock."""
_KEYSPACE = "create keyspace weather with replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"


@contextmanager
def cassandra(folder: Path) -> Iterator[list[Case]]:
    with CassandraServer(folder) as server:
        server.execute(_KEYSPACE)
        tables = _Tables(server)
        bare = f"cassandra-driver: execute_concurrent_with_args, {IN_FLIGHT} at a time"
        yield [
            Case("cassandra.sink", partial(_write, tables, False), partial(_bare, tables), bare, share=0.008),
            Case(
                "cassandra.sink-write-ahead", partial(_write, tables, True), partial(_bare, tables), bare, share=0.008
            ),
        ]


class _Tables:
    def __init__(self, server: CassandraServer) -> None:
        self.server = server
        self._numbers = itertools.count()

    def new(self) -> str:
        name = f"weather.readings_{next(self._numbers)}"
        self.server.execute(f"create table {name} (sensor_id text, ts bigint primary key, temp double)")
        return name

    def check(self, name: str, count: int) -> None:
        expect(len(self.server.execute(f"select ts from {name}")), count, "rows written")
        self.server.execute(f"drop table {name}")


def _write(tables: _Tables, write_ahead: bool, count: int) -> Cost:
    name = tables.new()
    cluster = ClusterBuilder(HOST, tables.server.port)
    cost = job.write(CassandraTableSink(cluster, name, list(FIELDS), write_ahead=write_ahead), count)
    tables.check(name, count)
    return cost


def _bare(tables: _Tables, count: int) -> Cost:
    from cassandra.cluster import Cluster
    from cassandra.concurrent import execute_concurrent_with_args

    name = tables.new()
    with Cluster([HOST], port=tables.server.port) as cluster:
        session = cluster.connect()
        insert = session.prepare(f"insert into {name} (sensor_id, ts, temp) values (?, ?, ?)")
        values = (tuple(row.values()) for row in rows(count))
        cost = timed(count, lambda: execute_concurrent_with_args(session, insert, values, concurrency=IN_FLIGHT))
    tables.check(name, count)
    return cost
