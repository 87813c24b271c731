"""The Postgres connector in the conformance tests: a job from one table to another."""

from __future__ import annotations

from typing import Any

from penstock.connectors.postgres.committer import PostgresCommitter
from penstock.datastream.connectors.postgres import PostgresSink, PostgresSource
from tests.integration.connectors.connector import FIELDS, Call
from tests.integration.sql.connector import SqlOnPostgresConnector


class PostgresConnector(SqlOnPostgresConnector):
    name = "postgres"
    calls = {
        "before commit": Call(PostgresCommitter, "commit", is_before=True),
        "within commit": Call(PostgresCommitter, "_write"),
        "after commit": Call(PostgresCommitter, "commit"),
    }

    def source(self) -> Any:
        options: Any = {"key": "id", "follow": 50, "password_file": self.password_file}
        return PostgresSource(self.url, f"a{self.id}", {"id": int}, **options)

    def sink(self) -> Any:
        return PostgresSink(self.url, f"b{self.id}", FIELDS, password_file=self.password_file)
