"""A stream of a test: its shards, its records, and a source and a sink for it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.core.source import ReadBounds, ReaderContext, Split
from penstock.connectors.kinesis.aggregated import hash_of
from penstock.datastream.connectors.kinesis import KinesisSource, KinesisStreamsSink, PartitionKeyGenerator
from tests.unit.connectors.kinesis.test_aggregated import aggregated
from tools.servers.kinesis import KinesisServer, client_to, until_active


def last_digit(value: Any) -> str:
    return str(value)[-1]


class Stream:
    """A stream on the server with this URL. `create` creates it."""

    def __init__(self, server_url: str, name: str) -> None:
        self.name = name
        self.client = client_to(server_url)
        self._url = server_url

    def create(self, shards: int = 1) -> None:
        self.client.create_stream(StreamName=self.name, ShardCount=shards)
        until_active(self.client, self.name)

    def put(self, *values: Any, key: Callable[[Any], str] = last_digit) -> None:
        for value in values:
            self.client.put_record(StreamName=self.name, Data=str(value).encode(), PartitionKey=key(value))

    def put_together(self, *values: Any, key: Callable[[Any], str] = last_digit) -> None:
        """Put aggregated records as the Kinesis Producer Library does: one record per shard, addressed by its first record's hash."""
        left = [(key(value), str(value).encode()) for value in values]
        for shard in self.open_shards:
            low, high = range_of(shard)
            mine = [(key, data) for key, data in left if low <= hash_of(key) <= high]
            if mine:
                keys = {"ExplicitHashKey": str(hash_of(mine[0][0])), "PartitionKey": "a"}
                data = aggregated(*((key, None, data) for key, data in mine))
                self.client.put_record(StreamName=self.name, Data=data, **keys)

    @property
    def open_shards(self) -> list[dict[str, Any]]:
        found = self.client.list_shards(StreamName=self.name)["Shards"]
        return [shard for shard in found if "EndingSequenceNumber" not in shard["SequenceNumberRange"]]

    def beginning(self, shard: dict[str, Any]) -> str:
        """Return the iterator before the first record of a shard."""
        request = {"StreamName": self.name, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        return str(self.client.get_shard_iterator(**request)["ShardIterator"])

    def split(self) -> None:
        shard = max(self.open_shards, key=_width)
        low, high = range_of(shard)
        middle = str((low + high) // 2)
        self.client.split_shard(StreamName=self.name, ShardToSplit=shard["ShardId"], NewStartingHashKey=middle)
        until_active(self.client, self.name)

    def merge(self) -> None:
        first, second = sorted(self.open_shards, key=range_of)[:2]
        self.client.merge_shards(
            StreamName=self.name, ShardToMerge=first["ShardId"], AdjacentShardToMerge=second["ShardId"]
        )
        until_active(self.client, self.name)

    def source(self, **options: Any) -> KinesisSource:
        given = {"endpoint": self._url, "start": "trim_horizon", "patience": 2_000, **options}
        return KinesisSource(self.name, given.pop("schema", SimpleStringSchema()), **given)

    def sink(self, serializer: Any = None, key: Any = None) -> KinesisStreamsSink:
        builder = KinesisStreamsSink.builder().set_stream_name(self.name)
        builder.set_serialization_schema(serializer or SimpleStringSchema())
        builder.set_partition_key_generator(key or PartitionKeyGenerator.random())
        return builder.set_kinesis_client_properties({"aws.endpoint": self._url}).build()

    def values(self, count: int, source: KinesisSource | None = None, patience: float = 15.0) -> list[Any]:
        """Return the values that a reader of all shards reads, without a job."""
        source = source or self.source()
        enumerator = source.create_enumerator()
        reader = source.create_reader(ReaderContext(0, 1, "in"))
        found: list[Any] = []
        readers: dict[str, tuple[Split, Any]] = {}
        until = time.monotonic() + patience
        while len(found) < count and time.monotonic() < until:
            readers |= {split.id: (split, reader.open_split(split, None)) for split in enumerator.discover()}
            found += taken(readers, enumerator)
            time.sleep(0.02)
        for _, each in readers.values():
            each.close()
        return found


def taken(readers: dict[str, tuple[Split, Any]], enumerator: Any) -> list[Any]:
    found: list[Any] = []
    for id, (split, reader) in list(readers.items()):
        batch = reader.read(ReadBounds())
        if batch is not None:
            found += batch.rows().values
        if reader.finished:
            enumerator.on_split_ended(split, reader.position)
            del readers[id]
    return found


def range_of(shard: dict[str, Any]) -> tuple[int, int]:
    hashes = shard["HashKeyRange"]
    return int(hashes["StartingHashKey"]), int(hashes["EndingHashKey"])


def _width(shard: dict[str, Any]) -> int:
    low, high = range_of(shard)
    return high - low


def new_stream(server: KinesisServer, shards: int = 1) -> Stream:
    """Create the stream of one test."""
    found = Stream(server.url, f"stream-{uuid.uuid4().hex[:8]}")
    found.create(shards)
    return found
