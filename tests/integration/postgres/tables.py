"""A separate table for each test, and sinks and sources for it."""

from __future__ import annotations

import uuid
from typing import Any

import psycopg

from penstock.datastream.connectors.postgres import PostgresSink, PostgresSource
from tools.servers.postgres import PostgresServer

FIELDS = {"id": int, "key": str}


class Table:
    def __init__(self, server: PostgresServer, columns: str = "id bigint primary key, key text") -> None:
        self.server = server
        self.name = f"t{uuid.uuid4().hex[:10]}"
        self.execute(f"create table {self.name} ({columns})")

    def execute(self, statement: str, values: Any = None) -> list[Any]:
        with psycopg.connect(self.server.conninfo, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def sink(self, fields: Any = FIELDS, **options: Any) -> PostgresSink:
        return PostgresSink(self.server.conninfo, self.name, fields, **options)

    def source(self, fields: Any = FIELDS, **options: Any) -> PostgresSource:
        return PostgresSource(self.server.conninfo, self.name, fields, **{"key": "id", **options})

    def ids(self) -> list[int]:
        return [row[0] for row in self.execute(f"select id from {self.name} order by id")]

    def add(self, *ids: int) -> None:
        self.execute(
            f"insert into {self.name} (id, key) select n, 'k' || n %% 3 from unnest(%s::bigint[]) n", [list(ids)]
        )
