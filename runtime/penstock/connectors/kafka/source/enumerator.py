"""Finds the partitions of a Kafka source and where each begins and ends; runs in the JobManager.

Offsets to begin at are settled here, once, when a partition is found, and are part of its split: a job that fails before its
first checkpoint begins at the same `latest` again. A partition that is found later, because a topic has grown or another
one fits the pattern, is read from its beginning: all of it was written after the job had begun.

A topic has an id besides its name. One that was deleted and made anew has the same name and other records under the offsets
that a checkpoint holds; going on there would lose some and repeat others. So it is an error, unless the source was told to
start anew (`KafkaSourceBuilder.set_recreated_topics`): then the attempt ends, for its tasks read under the old offsets, and the
next one drops the splits of the old topic before it assigns any. Sources that end look at their topics now and then, too: the
client asks for a topic that was deleted for ever, without a word.

Brokers that are away when an attempt has begun are no reason to end it: its readers wait for them, and so does the next look.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.common.errors import SourceError
from penstock.connectors.kafka.client import LOGGER, Properties
from penstock.connectors.kafka.offsets import ClusterAway, ClusterView, KafkaOffsetsInitializer, KafkaTopicPartition
from penstock.connectors.source import Split, SplitEnumerator


@dataclass(frozen=True)
class Subscription:
    """What is read: one of the three."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[KafkaTopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics like {self.pattern!r}"
        return ", ".join(self.topics or (f"{p.topic}-{p.partition}" for p in self.partitions))


class KafkaEnumerator(SplitEnumerator):
    """
    Args:
        starting, stopping: where partitions begin and, if the source is bounded, end.
        isolation_level: of the readers, for what `latest` means.
        interval_ms: look for partitions again after so many ms; None: once.
        ends: only partitions of the first look are read.
        starts_anew: a topic that was made again is read from its beginning, one of a pattern that was deleted no more.
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
        starts_anew: bool = False,
    ) -> None:
        self.discovery_interval_ms = interval_ms
        self._subscription = subscription
        self._starting = starting
        self._stopping = stopping
        self._ends = ends
        self._starts_anew = starts_anew
        self._cluster = ClusterView(properties, isolation_level)
        self._topics: dict[str, str] = {}
        """Name -> id of those that are read."""
        self._known: set[KafkaTopicPartition] = set()
        self._unread: dict[str, str] = {}
        """Id of a split that was not read to its end -> topic."""
        self._anew: set[str] = set()
        """Topics that were made again and are read from their beginning."""
        self._has_looked = False
        self._has_begun = False

    def discover(self) -> list[Split]:
        try:
            found = self._look()
        except ClusterAway as error:
            if not self._has_begun:
                raise
            LOGGER.warning("partitions are looked for later: %s", error.message)
            return []
        self._has_begun = True
        return found

    def check_group(self) -> None:
        """
        Raises:
            SourceError: this user has no right on the group.
        """
        try:
            self._cluster.committed(sorted(self._known))
        except ClusterAway as error:  # the group's coordinator, of which nothing else is asked
            LOGGER.warning("whether offsets may be committed is not known: %s", error.message)

    def is_finished(self) -> bool:
        return self._ends or super().is_finished()

    def _look(self) -> list[Split]:
        present = self.find()
        self._check_topics({partition.topic: topic_id for partition, topic_id in present.items()})
        new = [partition for partition in present if partition not in self._known]
        if self._ends and self._has_looked:
            new = [partition for partition in new if partition.topic in self._anew]
        starting = KafkaOffsetsInitializer.earliest() if self._has_looked else self._starting
        begins = self._cluster.resolve(starting, new, is_start=True)
        ends = {} if self._stopping is None else self._cluster.resolve(self._stopping, new)
        self._has_looked = True
        self._known.update(new)
        self._anew.clear()
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
        """All partitions there are now, with the ids of their topics.

        Raises:
            SourceError: a topic or a partition that was named does not exist, or the cluster cannot be asked.
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
                f"no partition {', '.join(absent)}", remedy="partitions are numbered from 0; correct the numbers"
            )
        return {partition: found[partition] for partition in wanted.partitions}

    def _missing(self, names: list[str]) -> SourceError:
        was_read = [name for name in names if name in self._topics]
        if was_read:
            return self._deleted(was_read)
        others = sorted(self._cluster.topics())
        close = [other for other in others if any(other.lower() == name.lower() for name in names)] or others[:10]
        return SourceError(
            f"no topic {', '.join(map(repr, names))}",
            remedy=f"make it, or correct its name; there are: {', '.join(close) or 'none'}",
        )

    def _deleted(self, names: list[str]) -> SourceError:
        return SourceError(
            f"topic {', '.join(map(repr, names))} was deleted while the job reads it: what was not read is lost",
            remedy="make the topic again and start the job without its state of this source, or take it out of the program"
            if self._subscription.pattern is None
            else "go on without topics that are deleted: builder.set_recreated_topics('start-anew')",
        )

    def _check_topics(self, present: dict[str, str]) -> None:
        """
        Raises:
            SourceError: a topic was deleted, or another one has its name now.
        """
        unread = set(self._unread.values())
        deleted = sorted(unread - present.keys())
        if deleted:
            raise self._deleted(deleted)
        for name, topic_id in present.items():
            if self._topics.get(name, topic_id) == topic_id:
                continue
            if name in unread or not self._starts_anew:
                raise self._made_again(name, topic_id)
            self._start_anew(name)
        self._topics.update(present)

    def _made_again(self, name: str, topic_id: str) -> SourceError:
        what = f"topic {name!r} was deleted and made again (its id was {self._topics[name]}, it is {topic_id})"
        if self._starts_anew:
            return SourceError(what, remedy="nothing is to be done: the next attempt begins with the new one")
        return SourceError(
            f"{what}: the offsets that the job holds are of records that are gone",
            remedy="let the source begin with the new topic: builder.set_recreated_topics('start-anew'), or start "
            "without the state of this source",
        )

    def _start_anew(self, name: str) -> None:
        LOGGER.warning("topic %r was deleted or made again; what its splits had not read is not read any more", name)
        self._known = {partition for partition in self._known if partition.topic != name}
        self._topics.pop(name, None)
        self._anew.add(name)

    def outdated(self, splits: Sequence[Split]) -> set[str]:
        self._unread = {split.id: split.properties["topic"] for split in splits}
        names = sorted(set(self._unread.values()))
        now = self._cluster.describe(names)
        deleted = [name for name in names if name not in now]
        if deleted and not (self._starts_anew and self._subscription.pattern is not None):
            raise self._deleted(deleted)
        changed = [name for name in names if name in now and self._topics.get(name, now[name].id) != now[name].id]
        if changed and not self._starts_anew:
            raise self._made_again(changed[0], now[changed[0]].id)
        for name in [*deleted, *changed]:
            self._start_anew(name)
        gone = {id for id, topic in self._unread.items() if topic in self._anew}
        for id in gone:
            del self._unread[id]
        return gone

    def on_split_finished(self, split_id: str) -> None:
        self._unread.pop(split_id, None)

    def snapshot(self) -> Any:
        return {"topics": self._topics, "partitions": sorted(self._known), "looked": self._has_looked}

    def restore(self, state: Any) -> None:
        if state is not None:
            self._topics = dict(state["topics"])
            self._known = {KafkaTopicPartition(*partition) for partition in state["partitions"]}
            self._has_looked = state["looked"]

    def close(self) -> None:
        self._cluster.close()
