"""A separate stream for each test, with helpers that read and write it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from typing import Any

import redis

from penstock.connectors.core.source import ReadBounds, ReaderContext, SplitReader
from penstock.datastream.connectors.redis import RedisStreamSource
from tools.servers.redis import RedisServer


class Stream:
    def __init__(self, server: RedisServer, name: str = "") -> None:
        self.server = server
        self.name = name or f"s{uuid.uuid4().hex[:10]}"

    @property
    def client(self) -> Any:
        return redis.Redis.from_url(self.server.url, decode_responses=True)

    def add(self, numbers: Iterable[int]) -> None:
        with self.client as client, client.pipeline(transaction=False) as pipeline:
            for number in numbers:
                pipeline.xadd(self.name, {"id": number})
            pipeline.execute()

    def entries(self) -> list[Any]:
        with self.client as client:
            return list(client.xrange(self.name))

    def ids(self) -> list[int]:
        return sorted(int(fields["id"]) for _, fields in self.entries())

    def trim(self, left: int) -> None:
        with self.client as client:
            client.xtrim(self.name, left, approximate=False)

    def delete(self) -> None:
        with self.client as client:
            client.delete(self.name)

    def source(self, schema: Any = None, **options: Any) -> RedisStreamSource:
        return RedisStreamSource(self.server.url, self.name, schema, **options)


def opened(source: RedisStreamSource, position: Any = None) -> SplitReader:
    """Return the reader of the source's only split."""
    (split,) = source.create_enumerator().discover()
    return source.create_reader(ReaderContext(0, 1, "in")).open_split(split, position)


def read(reader: SplitReader, count: int, at_once: int = 10_000, patience: float = 20.0) -> list[Any]:
    """Return this many values, or all values of a finished reader."""
    values: list[Any] = []
    deadline = time.monotonic() + patience
    while len(values) < count and not reader.finished:
        batch = reader.read(ReadBounds(min(at_once, count - len(values))))
        if batch is None:
            assert time.monotonic() < deadline, f"{len(values)} of {count} values"
            time.sleep(0.002)
        else:
            values += batch.rows().values
    return values


def numbers(values: list[Any]) -> list[int]:
    return [int(value.fields["id"]) for value in values]
