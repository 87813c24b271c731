"""The shards to read. A shard that results from a split or a merge follows when its parents were read to their end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.common.errors import SourceError
from penstock.connectors.core.source import Split, SplitEnumerator
from penstock.connectors.kinesis.settings import KinesisSettings
from penstock.connectors.kinesis.stream import LATEST, shards_of

if TYPE_CHECKING:
    pass


class ShardEnumerator(SplitEnumerator):
    """The enumerator of shards.

    It remembers the discovered shards, and the time up to which each finished shard was read. It forgets shards that the service no
    longer lists. For "latest", the start is the time of the first discovery. So a restart before the first record skips no records."""

    forgets_finished = True

    def __init__(self, source: KinesisSettings) -> None:
        self._source = source
        self.discovery_interval_ms = source.discovery_ms
        self._clients: dict[str, Any] = {}
        self._found: set[str] = set()
        self._finished: dict[str, int] = {}
        """Times in ms up to which finished shards were read."""
        self._start_ms = source.start_ms
        self._first_look = 0

    def discover(self) -> list[Split]:
        self._first_look = self._first_look or int(time.time() * 1000)
        if self._start_ms == LATEST:
            self._start_ms = self._first_look
        splits: list[Split] = []
        for stream in self._source.streams:
            prefix = f"{stream}/"
            shards = {f"{prefix}{shard['ShardId']}": shard for shard in self._list(stream)}
            gone = {id for id in self._found if id.startswith(prefix) and id not in shards}
            self._found -= gone
            self._finished = {id: read_to for id, read_to in self._finished.items() if id not in gone}
            for id, shard in shards.items():
                if id not in self._found and self._may_begin(stream, shard, shards):
                    self._found.add(id)
                    splits.append(self._split(id, stream, shard))
        return splits

    def _split(self, id: str, stream: str, shard: dict[str, Any]) -> Split:
        """Return the split of a shard. Its property `since` is a time in ms: earlier records that are dropped do not count as lost.

        It is the time of the job's first discovery, or the time up to which the shard's parents were read if that is later. A shard
        receives its first record after the last record of its parents."""
        read_to = [self._finished[parent] for parent in _parents(stream, shard) if parent in self._finished]
        hashes = shard["HashKeyRange"]
        return Split(
            id,
            {
                "stream": stream,
                "shard": shard["ShardId"],
                "start_ms": self._start_ms,
                "since": max([self._first_look, *read_to]),
                "hashes": [hashes["StartingHashKey"], hashes["EndingHashKey"]],
            },
        )

    def _may_begin(self, stream: str, shard: dict[str, Any], shards: dict[str, dict[str, Any]]) -> bool:
        return all(id in self._finished for id in _parents(stream, shard) if id in shards)

    def _list(self, stream: str) -> list[dict[str, Any]]:
        target = self._source.target(stream)
        if stream not in self._clients:
            self._clients[stream] = target.client(SourceError)
        return shards_of(target, self._clients[stream], stream)

    def is_finished(self) -> bool:
        return False

    def on_split_ended(self, split: Split, position: Any) -> None:
        self._finished[split.id] = position["read_to"] if position else split.properties["since"]

    def snapshot(self) -> Any:
        return {
            "found": sorted(self._found),
            "finished": self._finished,
            "start_ms": self._start_ms,
            "first_look": self._first_look,
        }

    def restore(self, state: Any) -> None:
        if state:
            self._found, self._finished = set(state["found"]), dict(state["finished"])
            self._start_ms, self._first_look = state["start_ms"], state["first_look"]


def _parents(stream: str, shard: dict[str, Any]) -> list[str]:
    names = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
    return [f"{stream}/{name}" for name in names if name]
