"""Which shards may be read: those that shards were split or merged into, when what came before them was read."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.common.errors import SourceError
from penstock.connectors.source import Split, SplitEnumerator

if TYPE_CHECKING:
    from penstock.connectors.kinesis.source import KinesisSource

TRIM_HORIZON, LATEST = 0, -1
"""Of `start_ms`, besides times since 1970."""


class ShardEnumerator(SplitEnumerator):
    """Remembers the shards that the service still lists: those found, and those read to their end. What begins later begins where the job did: "latest" is
    the time of the first look, so that a restart before the first record does not pass over any."""

    forgets_finished = True

    def __init__(self, source: KinesisSource) -> None:
        self._source = source
        self.discovery_interval_ms = source.discovery_ms
        self._clients: dict[str, Any] = {}
        self._found: set[str] = set()
        self._finished: set[str] = set()
        self._start_ms = source.start_ms

    def discover(self) -> list[Split]:
        if self._start_ms == LATEST:
            self._start_ms = int(time.time() * 1000)
        splits: list[Split] = []
        for stream in self._source.streams:
            prefix = f"{stream}/"
            shards = {f"{prefix}{shard['ShardId']}": shard for shard in self._list(stream)}
            gone = {id for id in self._found if id.startswith(prefix) and id not in shards}
            self._found -= gone
            self._finished -= gone
            for id, shard in shards.items():
                if id not in self._found and self._may_begin(stream, shard, shards):
                    self._found.add(id)
                    splits.append(Split(id, {"stream": stream, "shard": shard["ShardId"], "start_ms": self._start_ms}))
        return splits

    def _may_begin(self, stream: str, shard: dict[str, Any], shards: dict[str, dict[str, Any]]) -> bool:
        parents = [shard.get("ParentShardId"), shard.get("AdjacentParentShardId")]
        waits = [
            id for parent in parents if parent and (id := f"{stream}/{parent}") in shards and id not in self._finished
        ]
        return not waits

    def _list(self, stream: str) -> list[dict[str, Any]]:
        target = self._source.target(stream)
        if stream not in self._clients:
            self._clients[stream] = target.client(SourceError)
        client = self._clients[stream]
        shards: list[dict[str, Any]] = []
        asked: dict[str, Any] = {"StreamName": stream}
        while True:
            answer = target.asked(SourceError, "cannot be read", partial(client.list_shards, **asked))
            shards += answer["Shards"]
            if not answer.get("NextToken"):
                return shards
            asked = {"NextToken": answer["NextToken"]}

    def is_finished(self) -> bool:
        return False

    def on_split_finished(self, split_id: str) -> None:
        self._finished.add(split_id)

    def snapshot(self) -> Any:
        return {"found": sorted(self._found), "finished": sorted(self._finished), "start_ms": self._start_ms}

    def restore(self, state: Any) -> None:
        if state:
            self._found, self._finished = set(state["found"]), set(state["finished"])
            self._start_ms = state["start_ms"]
