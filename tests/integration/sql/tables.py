"""A separate table for each test in some database, and sinks and sources for it."""

from __future__ import annotations

import uuid
from typing import Any

import sqlalchemy
from sqlalchemy.pool import NullPool

from penstock.datastream.connectors.sql import SqlSink, SqlSource

FIELDS = {"id": int, "key": str}


def run(url: str, statement: str, values: Any = ()) -> list[Any]:
    """Execute a statement in a separate transaction and connection. `values` replace "?"."""
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=NullPool)
    mark = "?" if url.startswith("sqlite") else "%s"
    with engine.begin() as connection:
        result = connection.exec_driver_sql(statement.replace("?", mark), tuple(values) if values else ())
        return [tuple(row) for row in result] if result.returns_rows else []


class Table:
    def __init__(self, url: str, columns: str = "id bigint primary key, `key` varchar(20)") -> None:
        self.url = url
        self.name = f"t{uuid.uuid4().hex[:10]}"
        if url.startswith("postgresql"):
            columns = columns.replace("`", '"')
        self.execute(f"create table {self.name} ({columns})")

    def execute(self, statement: str, *values: Any) -> list[Any]:
        return run(self.url, statement, values)

    def sink(self, fields: Any = FIELDS, **options: Any) -> SqlSink:
        return SqlSink(self.url, self.name, fields, **options)

    def source(self, fields: Any = FIELDS, **options: Any) -> SqlSource:
        return SqlSource(self.url, self.name, fields, **{"key": "id", **options})

    def ids(self) -> list[int]:
        return [row[0] for row in self.execute(f"select id from {self.name} order by id")]

    def rows(self) -> list[Any]:
        return self.execute(f"select * from {self.name} order by id")

    def add(self, *ids: int) -> None:
        for start in range(0, len(ids), 500):
            rows = ", ".join(f"({n}, 'k{n % 3}')" for n in ids[start : start + 500])
            self.execute(f"insert into {self.name} values {rows}")
