"""Redis in the conformance tests: a job from one stream to another, and one from files to the fields of a hash."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import redis

from penstock.connectors.redis.committer import RedisCommitter
from penstock.datastream.connectors.redis import RedisSink, RedisStreamSink, RedisStreamSource
from tests.integration.connectors.connector import Call, Connector
from tools.servers.redis import RedisServer

RIGHTS = "on >first ~* &* +@all"
"""Redis's rules for a user with all rights and the password `first`."""


class RedisConnector(Connector):
    """The keys `a…` and `b…`, and a user for each test. The file `password` contains the user's password.

    `address` is the URL of the administrator.
    """

    server = "redis"
    fixture = "redis_server"
    renews_credentials = True
    pause_s = 3.0

    def __init__(self, folder: Path, address: str = "") -> None:
        super().__init__(folder, address)
        self._secret = folder / "password"
        self.reads, self.writes = f"a{self.id}", f"b{self.id}"

    @classmethod
    def address_of(cls, server: Any) -> str:
        return str(server.url)

    @classmethod
    def own_server(cls, folder: Path, ids: list[str]) -> Any:
        # A restarted server has only the users of its configuration, one in each line.
        return RedisServer(folder / "server", user="\nuser ".join(f"u{id} {RIGHTS}" for id in ids))

    @property
    def url(self) -> str:
        return f"redis://u{self.id}@{self.address.rpartition('@')[2]}"

    def _client(self) -> Any:
        return redis.Redis.from_url(self.address, decode_responses=True)

    def set_up(self) -> None:
        super().set_up()
        self._secret.write_text("first")
        with self._client() as client:
            client.execute_command("ACL", "SETUSER", f"u{self.id}", *RIGHTS.split())

    def renew_credentials(self) -> None:
        self._secret.write_text("second")
        with self._client() as client:
            client.execute_command("ACL", "SETUSER", f"u{self.id}", "resetpass", ">second")
            client.execute_command("CLIENT", "KILL", "USER", f"u{self.id}")


class RedisStreamConnector(RedisConnector):
    name = "redis"
    calls = {
        "before commit": Call(RedisCommitter, "commit", is_before=True),
        "within commit": Call(RedisCommitter, "_add"),
        "after commit": Call(RedisCommitter, "commit"),
    }

    def source(self) -> RedisStreamSource:
        return RedisStreamSource(self.url, self.reads, may_be_missing=True, password_file=str(self._secret))

    def number_of(self, record: Any) -> int:
        return int(record.fields["id"])

    def sink(self) -> RedisStreamSink:
        options: Any = {"batch_size": 20, "password_file": str(self._secret)}
        return RedisStreamSink(self.url, self.writes, lambda record: record, **options)

    def feed(self, numbers: Iterable[int]) -> None:
        with self._client() as client, client.pipeline(transaction=False) as pipeline:
            for number in numbers:
                pipeline.xadd(self.reads, {"id": number})
            pipeline.execute()

    def rows(self) -> list[tuple[int, str]]:
        with self._client() as client:
            return [(int(fields["id"]), fields["key"]) for _, fields in client.xrange(self.writes)]


class RedisHashConnector(RedisConnector):
    name = "redis-commands"
    is_keyed = True

    def sink(self) -> RedisSink:
        writes = self.writes
        options: Any = {"password_file": str(self._secret)}
        return RedisSink(self.url, lambda command: (command[0], writes, *command[1:]), **options)

    def record_of(self, number: Any, text: str) -> Any:
        return ("HSET", number, text)

    def deletion_of(self, number: int) -> Any:
        return ("HDEL", number)

    def rows(self) -> list[tuple[int, str]]:
        with self._client() as client:
            return [(int(key), text) for key, text in client.hgetall(self.writes).items()]
