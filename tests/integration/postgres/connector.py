"""Postgres in the conformance tests: a job from one table to another, and one from the changes of a table to files."""

from __future__ import annotations

from typing import Any

from penstock.connectors.postgres.cdc.replication import ReplicationLink
from penstock.connectors.postgres.cdc.source import CdcReader
from penstock.connectors.postgres.committer import PostgresCommitter
from penstock.datastream.connectors.postgres import PostgresCdcSource, PostgresSink, PostgresSource
from tests.integration.connectors.connector import FIELDS, Call, Connector
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


class PostgresCdcConnector(SqlOnPostgresConnector):
    """The changes of the table `a…`, with a separate publication and slot. The rows of the output are in files."""

    name = "postgres-changes"
    fixture = "logical_postgres"
    refused = ""
    calls = {
        "before confirm": Call(CdcReader, "notify_checkpoint_complete", is_before=True),
        "after confirm": Call(CdcReader, "notify_checkpoint_complete"),
        "after report": Call(ReplicationLink, "tell"),
    }

    def source(self) -> Any:
        builder = PostgresCdcSource.builder().set_conninfo(self.url).set_password_file(self.password_file)
        builder = builder.set_table(f"a{self.id}", {"id": int}).set_publication(f"p{self.id}")
        return builder.set_slot_name(f"s{self.id}").set_heartbeat_interval(50).build()

    def number_of(self, record: Any) -> int:
        return int(record[0])

    def sink(self) -> Any:
        return Connector.sink(self)

    def rows(self) -> list[tuple[int, str]]:
        return Connector.rows(self)

    def set_up(self) -> None:
        super().set_up()
        self._execute(f"create publication p{self.id} for table a{self.id}")
