"""The SQL connector in the conformance tests: a job from one table to another."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from penstock.connectors.sql.committer import SqlCommitter
from penstock.datastream.connectors.sql import SqlSink, SqlSource
from tests.integration.connectors.connector import FIELDS, Call, Connector
from tests.integration.sql.tables import run
from tools.servers.postgres import PostgresServer


class SqlConnector(Connector):
    """The table `a…` with a key, and the table `b…` without a key, which would hide a repeated row.

    `address` is the URL of the administrator.
    """

    calls = {
        "before commit": Call(SqlCommitter, "commit", is_before=True),
        "within commit": Call(SqlCommitter, "_write"),
        "after commit": Call(SqlCommitter, "commit"),
    }
    quick_calls = ("within commit",)
    refused = "poison"
    quote: ClassVar[str] = '"'
    password_file = ""

    @property
    def url(self) -> str:
        """The URL with which the job connects."""
        return self.address

    def source(self) -> SqlSource:
        options: Any = {"key": "id", "follow": 50, "settle": 50, "password_file": self.password_file}
        return SqlSource(self.url, f"a{self.id}", {"id": int}, **options)

    def number_of(self, record: Any) -> int:
        return int(record["id"])

    def sink(self) -> SqlSink:
        return SqlSink(self.url, f"b{self.id}", FIELDS, password_file=self.password_file)

    def set_up(self) -> None:
        self._execute(f"create table a{self.id} (id bigint primary key)")
        self._execute(f"create table b{self.id} (id bigint, {self.quote}key{self.quote} varchar(20))")

    def feed(self, numbers: Iterable[int]) -> None:
        self._execute(f"insert into a{self.id} values {', '.join(f'({number})' for number in numbers)}")

    def rows(self) -> list[tuple[int, str]]:
        return self._execute(f"select * from b{self.id}")

    def _execute(self, statement: str) -> list[Any]:
        return run(self.address, statement)


class SqliteConnector(SqlConnector):
    name = "sqlite"

    def __init__(self, folder: Path, address: str = "") -> None:
        super().__init__(folder, f"sqlite:///{folder / 'test.db'}")


class SqlServerConnector(SqlConnector):
    """A database with a user for each test. The file `password` contains the user's password."""

    renews_credentials = True

    def __init__(self, folder: Path, address: str = "") -> None:
        super().__init__(folder, address)
        self._secret = folder / "password"
        self.password_file = str(self._secret)

    @property
    def url(self) -> str:
        _, _, location = self.address.rpartition("@")
        return f"{self.address.partition('://')[0]}://u{self.id}@{location}"


class MariaDbConnector(SqlServerConnector):
    name = "mariadb"
    server = "mariadb"
    quote = "`"

    @classmethod
    def address_of(cls, server: Any) -> str:
        return str(server.url)

    def set_up(self) -> None:
        super().set_up()
        self._secret.write_text("first")
        self._execute(f"create user u{self.id} identified by 'first'")
        self._execute(f"grant all privileges on *.* to u{self.id}")

    def renew_credentials(self) -> None:
        self._secret.write_text("second")
        self._execute(f"alter user u{self.id} identified by 'second'")
        self._execute(f"kill user u{self.id}")


class SqlOnPostgresConnector(SqlServerConnector):
    name = "sql-on-postgres"
    server = "postgres"

    @classmethod
    def address_of(cls, server: Any) -> str:
        return str(server.conninfo)

    @classmethod
    def own_server(cls, folder: Path, ids: list[str]) -> PostgresServer:
        return PostgresServer(folder / "server", is_logical=True)

    def set_up(self) -> None:
        super().set_up()
        self._secret.write_text("first")
        self._execute(f"create role u{self.id} login superuser password 'first'")

    def renew_credentials(self) -> None:
        self._secret.write_text("second")
        self._execute(f"alter role u{self.id} password 'second'")
        self._execute(f"select pg_terminate_backend(pid) from pg_stat_activity where usename = 'u{self.id}'")
