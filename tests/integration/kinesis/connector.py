"""Kinesis in the conformance tests: a job from a stream to files, and one from files to a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.connectors.kinesis.reader import Shard
from penstock.connectors.kinesis.shards import ShardEnumerator
from penstock.connectors.kinesis.sink import KinesisWriter
from penstock.datastream.formats.json import JsonLinesFormat
from tests.integration.connectors.connector import Call, Connector
from tests.integration.connectors.program import KEYS as NUMBER_OF_KEYS
from tests.integration.kinesis.streams import Stream
from tools.servers.kinesis import KEYS

SHARDS = 2


class StreamConnector(Connector):
    """The stream `s…`. `address` is the server's URL."""

    server = "kinesis"
    environment = KEYS
    loses_data = True
    pause_s = 3.0

    def __init__(self, folder: Path, address: str = "") -> None:
        super().__init__(folder, address)
        self._opened: Stream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @classmethod
    def address_of(cls, server: Any) -> str:
        return str(server.url)

    @property
    def stream(self) -> Stream:
        if self._opened is None:
            self._opened = Stream(self.address, f"s{self.id}")
        return self._opened

    def set_up(self) -> None:
        super().set_up()
        self.stream.create(SHARDS)


class KinesisSourceConnector(StreamConnector):
    """A stream whose shards are split and merged. Every second group of numbers is aggregated."""

    name = "kinesis-source"
    calls = {
        "after read": Call(Shard, "take"),
        "before end of shard": Call(ShardEnumerator, "on_split_ended", is_before=True),
        "after end of shard": Call(ShardEnumerator, "on_split_ended"),
    }
    undecodable = "malformed record"
    is_ordered = True

    def __init__(self, folder: Path, address: str = "") -> None:
        super().__init__(folder, address)
        self._feeds = 0

    def source(self) -> Any:
        on_error = "side-output" if self.is_healed else "fail"
        options: Any = {"discovery_interval": 100, "on_error": on_error, "patience": 5_000}
        return Stream(self.address, f"s{self.id}").source(schema=JsonLinesFormat({"n": int}), **options)

    def number_of(self, record: Any) -> int:
        return int(record["n"])

    def feed(self, numbers: Iterable[int]) -> None:
        put = (self.stream.put, self.stream.put_together)[self._feeds % 2]
        put(*(json.dumps({"n": number}) for number in numbers), key=_key)
        if self._feeds % 2:
            reshard = (self.stream.split, self.stream.merge)[self._feeds // 2 % 2]
            reshard()
        self._feeds += 1

    def feed_poison(self) -> None:
        self.stream.put("none")


class KinesisSinkConnector(StreamConnector):
    name = "kinesis-sink"
    calls = {"after send": Call(KinesisWriter, "_request")}
    is_exactly_once = False
    refused = "partition key is ''"

    def __init__(self, folder: Path, address: str = "") -> None:
        super().__init__(folder, address)
        self._iterators: dict[str, str] = {}
        self._read: list[tuple[int, str]] = []

    def sink(self) -> Any:
        return Stream(self.address, f"s{self.id}").sink(key=lambda text: text[:256])

    def record_of(self, number: Any, text: str) -> str:
        return json.dumps([number, text]) if isinstance(number, int) else ""

    def rows(self) -> list[tuple[int, str]]:
        client = self.stream.client
        if not self._iterators:
            self._iterators = {shard["ShardId"]: self.stream.beginning(shard) for shard in self.stream.open_shards}
        for shard, iterator in self._iterators.items():
            answer = client.get_records(ShardIterator=iterator)
            self._iterators[shard] = answer["NextShardIterator"]
            self._read += [tuple(json.loads(record["Data"])) for record in answer["Records"]]
        return self._read


def _key(text: str) -> str:
    return str(json.loads(text)["n"] % NUMBER_OF_KEYS)
