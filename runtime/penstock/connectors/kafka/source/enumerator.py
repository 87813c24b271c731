"""Discover the partitions of a Kafka source, and determine where each begins and ends. The enumerator runs in the JobManager.

The starting offsets are determined once, when a partition is discovered, and stored in its split. So a job that fails before its first
checkpoint restarts at the same `latest`. A partition may be discovered later, because a topic has grown or another topic matches the
pattern. The job reads such a partition from its beginning, because all its records were written after the job's start.

A topic has an id in addition to its name. A recreated topic has the same name, but other records at the offsets of a
checkpoint. If the job continued there, it would lose some records and repeat others. So a recreated topic is an error,
unless the source is configured to start again (`KafkaSourceBuilder.set_recreated_topics`). Then the attempt ends,
because its tasks read at the old offsets. The next attempt drops the splits of the old topic before it assigns splits.
Bounded sources check their topics periodically, too, because the client silently retries a deleted topic forever.

Unavailable brokers do not end a running attempt. The attempt's readers and the next discovery wait for these brokers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.common.errors import SourceError
from penstock.connectors.core.source import Split, SplitEnumerator
from penstock.connectors.kafka.client import LOGGER, Properties
from penstock.connectors.kafka.offsets import ClusterAway, ClusterView, KafkaOffsetsInitializer, KafkaTopicPartition


@dataclass(frozen=True)
class Subscription:
    """The topics, the pattern or the partitions that the source reads. Exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[KafkaTopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"the pattern {self.pattern!r}"
        return ", ".join(self.topics or (f"{p.topic}-{p.partition}" for p in self.partitions))


class KafkaEnumerator(SplitEnumerator):
    """The enumerator of a Kafka source. It discovers partitions, and determines where each begins and ends.

    Args:
        starting, stopping: the offsets where partitions begin and, if the source is bounded, end.
        isolation_level: the isolation level of the readers, which affects the meaning of `latest`.
        interval_ms: the interval between two discoveries in ms. None means to discover once.
        ends: read only partitions of the first discovery.
        restarts_recreated: read a recreated topic from its beginning, and stop reading a deleted topic of a pattern.
    """

    forgets_finished = True

    def __init__(
        self,
        subscription: Subscription,
        properties: Properties,
        starting: KafkaOffsetsInitializer,
        stopping: KafkaOffsetsInitializer | None,
        isolation_level: str,
        interval_ms: int | None,
        *,
        ends: bool = False,
        restarts_recreated: bool = False,
    ) -> None:
        self.discovery_interval_ms = interval_ms
        self._subscription = subscription
        self._starting = starting
        self._stopping = stopping
        self._ends = ends
        self._restarts_recreated = restarts_recreated
        self._cluster = ClusterView(properties, isolation_level)
        self._topics: dict[str, str] = {}
        """Name -> id of the topics that are read."""
        self._known: set[KafkaTopicPartition] = set()
        self._unread: dict[str, str] = {}
        """Id of a split that was not read to its end -> its topic."""
        self._recreated: set[str] = set()
        """Recreated topics, which are read from their beginning."""
        self._has_discovered = False
        self._has_started = False

    def discover(self) -> list[Split]:
        try:
            found = self._find_new()
        except ClusterAway as error:
            if not self._has_started:
                raise
            LOGGER.warning(
                "partitions cannot be discovered now; the source retries at the next interval: %s", error.message
            )
            return []
        self._has_started = True
        return found

    def check_group(self) -> None:
        """Check that this user may use the consumer group.

        Raises:
            SourceError: this user has no permission on the group.
        """
        try:
            self._cluster.committed(sorted(self._known))
        except ClusterAway as error:  # only this check needs the group's coordinator
            LOGGER.warning("cannot check whether offsets may be committed: %s", error.message)

    def is_finished(self) -> bool:
        return self._ends or super().is_finished()

    def _find_new(self) -> list[Split]:
        present = self.find()
        self._check_topics({partition.topic: topic_id for partition, topic_id in present.items()})
        new = [partition for partition in present if partition not in self._known]
        if self._ends and self._has_discovered:
            new = [partition for partition in new if partition.topic in self._recreated]
        starting = KafkaOffsetsInitializer.earliest() if self._has_discovered else self._starting
        begins = self._cluster.resolve(starting, new, is_start=True)
        ends = {} if self._stopping is None else self._cluster.resolve(self._stopping, new)
        self._has_discovered = True
        self._known.update(new)
        self._recreated.clear()
        found = [
            Split(
                f"{at.topic}-{at.partition}@{present[at]}",
                {"topic": at.topic, "partition": at.partition, "start": begins[at], "stop": ends.get(at)},
            )
            for at in new
        ]
        self._unread |= {split.id: split.properties["topic"] for split in found}
        return found

    def find(self) -> dict[KafkaTopicPartition, str]:
        """Return all existing partitions with the ids of their topics.

        Raises:
            SourceError: a named topic or partition does not exist, or the cluster cannot be queried.
        """
        wanted = self._subscription
        names = list(dict.fromkeys(wanted.topics or [partition.topic for partition in wanted.partitions]))
        if wanted.pattern is not None:
            fits = re.compile(wanted.pattern).fullmatch
            names = sorted(filter(fits, self._cluster.topics()))
        if not names:
            return {}
        states = self._cluster.describe(names)
        missing = [] if wanted.pattern is not None else [name for name in names if name not in states]
        if missing:
            raise self._missing(missing)
        found = {
            KafkaTopicPartition(name, number): states[name].id
            for name in names
            if name in states
            for number in range(states[name].partitions)
        }
        if not wanted.partitions:
            return found
        absent = [f"{p.topic}-{p.partition}" for p in wanted.partitions if p not in found]
        if absent:
            raise SourceError(
                f"partition {', '.join(absent)} does not exist",
                remedy="correct the number of the partition (the first is 0)",
            )
        return {partition: found[partition] for partition in wanted.partitions}

    def _missing(self, names: list[str]) -> SourceError:
        was_read = [name for name in names if name in self._topics]
        if was_read:
            return self._deleted(was_read)
        others = sorted(self._cluster.topics())
        close = [other for other in others if any(other.lower() == name.lower() for name in names)] or others[:10]
        return SourceError(
            f"topic {', '.join(map(repr, names))} does not exist",
            remedy=f"create it, or correct its name; similar topics: {', '.join(close) or 'none'}",
        )

    def _deleted(self, names: list[str]) -> SourceError:
        return SourceError(
            f"topic {', '.join(map(repr, names))} was deleted while the job was reading it: unread records are lost",
            remedy="create the topic again and start the job without the state of this source, or remove the topic from the program"
            if self._subscription.pattern is None
            else "continue without deleted topics: builder.set_recreated_topics('restart')",
        )

    def _check_topics(self, present: dict[str, str]) -> None:
        """Check for topics that were deleted or replaced. Start a replaced topic at its beginning if the settings allow it.

        Raises:
            SourceError: a topic was deleted, or another topic now has its name.
        """
        unread = set(self._unread.values())
        deleted = sorted(unread - present.keys())
        if deleted:
            raise self._deleted(deleted)
        for name, topic_id in present.items():
            if self._topics.get(name, topic_id) == topic_id:
                continue
            if name in unread or not self._restarts_recreated:
                raise self._recreated_error(name, topic_id)
            self._forget_topic(name)
        self._topics.update(present)

    def _recreated_error(self, name: str, topic_id: str) -> SourceError:
        problem = (
            f"topic {name!r} was deleted and created again (its id was {self._topics[name]}, and is now {topic_id})"
        )
        if self._restarts_recreated:
            return SourceError(problem, remedy="do nothing: the next attempt starts with the new topic")
        return SourceError(
            f"{problem}: the job's offsets belong to records that no longer exist",
            remedy="start with the new topic: builder.set_recreated_topics('restart'), or start "
            "without the state of this source",
        )

    def _forget_topic(self, name: str) -> None:
        LOGGER.warning("topic %r was deleted or created again; its unread records are skipped", name)
        self._known = {partition for partition in self._known if partition.topic != name}
        self._topics.pop(name, None)
        self._recreated.add(name)

    def outdated(self, splits: Sequence[Split]) -> set[str]:
        self._unread = {split.id: split.properties["topic"] for split in splits}
        names = sorted(set(self._unread.values()))
        now = self._cluster.describe(names)
        deleted = [name for name in names if name not in now]
        if deleted and not (self._restarts_recreated and self._subscription.pattern is not None):
            raise self._deleted(deleted)
        changed = [name for name in names if name in now and self._topics.get(name, now[name].id) != now[name].id]
        if changed and not self._restarts_recreated:
            raise self._recreated_error(changed[0], now[changed[0]].id)
        for name in [*deleted, *changed]:
            self._forget_topic(name)
        gone = {id for id, topic in self._unread.items() if topic in self._recreated}
        for id in gone:
            del self._unread[id]
        return gone

    def on_split_finished(self, split_id: str) -> None:
        self._unread.pop(split_id, None)

    def snapshot(self) -> Any:
        return {"topics": self._topics, "partitions": sorted(self._known), "looked": self._has_discovered}

    def restore(self, state: Any) -> None:
        if state is not None:
            self._topics = dict(state["topics"])
            self._known = {KafkaTopicPartition(*partition) for partition in state["partitions"]}
            self._has_discovered = state["looked"]

    def close(self) -> None:
        self._cluster.close()
