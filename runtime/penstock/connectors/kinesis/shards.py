"""Which shards may be read: those that shards were split or merged into, when what came before them was read."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.common.errors import SourceError
from penstock.connectors.source import Split, SplitEnumerator

if TYPE_CHECKING:
    from penstock.connectors.aws import AwsTarget
    from penstock.connectors.kinesis.source import KinesisSource

TRIM_HORIZON, LATEST = 0, -1
"""Of `start_ms`, besides times since 1970."""


class ShardEnumerator(SplitEnumerator):
    """Remembers the shards that the service still lists: those found, and until when those that were read to their end had been read. What begins later begins
    where the job did: "latest" is the time of the first look, so that a restart before the first record does not pass over any."""

    forgets_finished = True

    def __init__(self, source: KinesisSource) -> None:
        self._source = source
        self.discovery_interval_ms = source.discovery_ms
        self._clients: dict[str, Any] = {}
        self._found: set[str] = set()
        self._finished: dict[str, int] = {}
        """Until when they were read, ms."""
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
        """With the time from which on what comes to it is the job's, ms: the first look, or until when its parents were read, than which it is younger."""
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


def shards_of(target: AwsTarget, client: Any, stream: str) -> list[dict[str, Any]]:
    """All that the service lists.

    Raises:
        SourceError: it does not.
    """
    shards: list[dict[str, Any]] = []
    asked: dict[str, Any] = {"StreamName": stream}
    while True:
        some, token = target.asked(SourceError, "cannot be read", partial(_listed, client, asked))
        shards += some
        if not token:
            return shards
        asked = {"NextToken": token}


def _listed(client: Any, asked: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    answer = client.list_shards(**asked)
    return answer["Shards"], answer.get("NextToken", "")


def _parents(stream: str, shard: dict[str, Any]) -> list[str]:
    names = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
    return [f"{stream}/{name}" for name in names if name]
