"""Redis: a server that writes every command to disk before it responds; redis-py without Penstock."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.connectors import job
from benchmarks.connectors.case import Case
from benchmarks.connectors.cost import Cost, consumed, timed
from benchmarks.connectors.records import FIELDS, decode, expect, messages, parts, rows
from penstock.datastream.connectors.redis import DeliveryGuarantee, RedisSink, RedisStreamSink, RedisStreamSource
from penstock.datastream.formats.json import JsonLinesFormat
from tools.servers.redis import RedisServer

AT_A_TIME = 1_000


@contextmanager
def redis(folder: Path) -> Iterator[list[Case]]:
    with RedisServer(folder) as server:
        streams = _Streams(server)
        yield [
            Case(
                "redis.source",
                partial(_read, streams),
                lambda count: consumed(count, _entries(streams, streams.filled(count))),
                "redis-py: XREAD, 1,000 at a time",
            ),
            Case(
                "redis.sink-exactly-once",
                lambda count: _write(streams, count, DeliveryGuarantee.EXACTLY_ONCE),
                lambda count: _add(streams, count, transaction=True),
                "redis-py: a MULTI of 1,000 XADDs",
            ),
            Case(
                "redis.sink-at-least-once",
                lambda count: _write(streams, count, DeliveryGuarantee.AT_LEAST_ONCE),
                lambda count: _add(streams, count, transaction=False),
                "redis-py: a pipeline of 1,000 XADDs",
            ),
            Case(
                "redis.sink-commands",
                partial(_command, streams),
                lambda count: timed(count, partial(_set, streams, count)),
                "redis-py: a pipeline of 1,000 HSETs",
            ),
        ]


class _Streams:
    def __init__(self, server: RedisServer) -> None:
        import redis

        self.server = server
        self._redis = redis
        self._numbers = itertools.count()
        self._filled: dict[int, str] = {}

    def client(self) -> Any:
        return self._redis.Redis.from_url(self.server.url)

    def new(self) -> str:
        return f"readings-{next(self._numbers)}"

    def filled(self, count: int) -> str:
        """Return the name of a stream with this many readings."""
        if count not in self._filled:
            name = self._filled[count] = self.new()
            with self.client() as client:
                for part in parts(messages(count), AT_A_TIME):
                    pipeline = client.pipeline(transaction=False)
                    for message in part:
                        pipeline.xadd(name, {"value": message})
                    pipeline.execute()
        return self._filled[count]

    def check(self, name: str, count: int) -> None:
        with self.client() as client:
            expect(client.xlen(name), count, "entries written")
            client.delete(name)


def _read(streams: _Streams, count: int) -> Cost:
    name = streams.filled(count)
    return job.read(RedisStreamSource(streams.server.url, [name], JsonLinesFormat(FIELDS), bounded=True), count)


def _entries(streams: _Streams, name: str) -> Iterator[list[Any]]:
    last = b"0"
    with streams.client() as client:
        while found := client.xread({name: last}, count=AT_A_TIME):
            entries = found[0][1] if isinstance(found, list) else next(iter(found.values()))[0]
            last = entries[-1][0]
            yield [decode(fields[b"value"]) for _, fields in entries]


def _write(streams: _Streams, count: int, guarantee: DeliveryGuarantee) -> Cost:
    name = streams.new()
    cost = job.write(RedisStreamSink(streams.server.url, name, lambda row: row, guarantee=guarantee), count)
    streams.check(name, count)
    return cost


def _add(streams: _Streams, count: int, *, transaction: bool) -> Cost:
    name = streams.new()
    cost = timed(count, partial(_added, streams, name, count, transaction))
    streams.check(name, count)
    return cost


def _added(streams: _Streams, name: str, count: int, transaction: bool) -> None:
    with streams.client() as client:
        for part in parts(rows(count), AT_A_TIME):
            pipeline = client.pipeline(transaction=transaction)
            for row in part:
                pipeline.xadd(name, row)
            pipeline.execute()


def _command(streams: _Streams, count: int) -> Cost:
    name = streams.new()
    sink = RedisSink(streams.server.url, lambda row: ("HSET", name, row["sensor_id"], row["temp"]))
    cost = job.write(sink, count)
    with streams.client() as client:
        expect(client.hlen(name), min(count, 10_000), "sensors written")
    return cost


def _set(streams: _Streams, count: int) -> None:
    name = streams.new()
    with streams.client() as client:
        for part in parts(rows(count), AT_A_TIME):
            pipeline = client.pipeline(transaction=False)
            for row in part:
                pipeline.hset(name, row["sensor_id"], row["temp"])
            pipeline.execute()
