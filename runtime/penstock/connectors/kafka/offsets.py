"""Offsets of partitions at which reading begins and ends, with PyFlink's names, and how they are determined."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, TypeVar

from penstock.common.errors import InvalidJob, SourceError
from penstock.connectors.kafka.client import CONNECT_S, Complaints, Properties, administrating, explained, package
from penstock.connectors.kafka.group_offsets import GroupClient

T = TypeVar("T")

PATIENCE_S = 60.0
"""Seconds for which a request is retried while leaders and coordinators move."""
_PAUSE_S = 0.5
_MOVING = (5, 6, 14, 15, 16, 72, 74, 75, 78, 103)
"""Kafka's error codes for temporary states. A leader or listener is missing, or the broker is not the leader. A coordinator loads, is
missing or has moved. Leader epochs differ. Offsets or topic ids are not known yet."""
_AWAY = (
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_DESTROY_BROKER",  # the client drops the address of a broker whose connection it has just lost
    "_TIMED_OUT",
    "_TIMED_OUT_QUEUE",
    "_RESOLVE",
    "REQUEST_TIMED_OUT",
)


class ClusterAway(SourceError):
    """An error for a cluster in which no broker answers, or no broker knows the leader. A retry may succeed."""


class KafkaTopicPartition(NamedTuple):
    """A partition of a topic, numbered from 0."""

    topic: str
    partition: int


class KafkaOffsetResetStrategy(Enum):
    """The start in a partition that has no usable offset."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


@dataclass(frozen=True)
class KafkaOffsetsInitializer:
    """The rule that decides where reading begins, or ends, in each partition. The static methods return rules.

    A rule applies only to the first start, because a restored checkpoint overrides it. Partitions that are found later are read from their
    beginning.
    """

    kind: str
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE
    timestamp_ms: int = 0
    given: tuple[tuple[KafkaTopicPartition, int], ...] = ()

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """Return a rule for the oldest existing record."""
        return KafkaOffsetsInitializer("earliest")

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """Return a rule for the end of the partition at the job's start."""
        return KafkaOffsetsInitializer("latest")

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """Return a rule for the first record whose time is at or after `timestamp` (ms), or for the end if no such record exists."""
        if timestamp < 0:
            raise InvalidJob(
                f"timestamp {timestamp} is before 1970", remedy="pass ms since 1970, or use earliest() or latest()"
            )
        return KafkaOffsetsInitializer("timestamp", timestamp_ms=timestamp)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """Return a rule for the offsets that the group has committed.

        `offset_reset_strategy` applies to a partition that has no committed offset, or no record at this offset. It selects an
        error, the beginning or the end.
        """
        return KafkaOffsetsInitializer("committed", offset_reset_strategy)

    @staticmethod
    def offsets(
        offsets: dict[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """Return a rule for these offsets. `offset_reset_strategy` applies to a partition without an offset, or without a record there."""
        given = tuple(sorted((KafkaTopicPartition(*partition), offset) for partition, offset in offsets.items()))
        negative = [str(partition) for partition, offset in given if offset < 0]
        if negative:
            raise InvalidJob(f"the offsets for {', '.join(negative)} are negative", remedy="pass offsets from 0")
        return KafkaOffsetsInitializer("offsets", offset_reset_strategy, given=given)


class TopicState(NamedTuple):
    """The state of a topic. The broker's `id` differs for a new topic of the same name; it is empty if the broker reports none."""

    id: str
    partitions: int


class ClusterView:
    """The requests of an enumerator to a cluster. The first request connects to the cluster.

    Args:
        isolation_level: the reader's level. For `read_committed`, a partition ends at the beginning of its oldest open transaction.
    """

    def __init__(self, properties: Properties, isolation_level: str = "read_uncommitted") -> None:
        self._properties = properties
        self._committed_only = isolation_level == "read_committed"
        self._complaints = Complaints()
        self._admin: Any = None

    def _client(self) -> Any:
        if self._admin is None:
            admin = package("confluent_kafka.admin").AdminClient
            self._admin = create_client(
                lambda: admin(administrating(self._properties, self._complaints)), self._properties
            )
        return self._admin

    def _query(self, problem: str, question: Callable[[Any], T]) -> T:
        """Return the answer. Retry the request while leaders and coordinators move."""
        kafka = package("confluent_kafka")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            client = self._client()
            try:
                return question(client)
            except kafka.KafkaException as error:
                client.poll(0.1)  # this call delivers the client's error reports
                moves = error.args[0].code() in _MOVING
                if not moves or time.monotonic() > deadline:
                    kind = ClusterAway if moves or error.args[0].name() in _AWAY else SourceError
                    raise explained(kind, problem, error, self._properties, self._complaints.last) from error
            self._admin = None  # an admin client does not learn of new leaders
            time.sleep(_PAUSE_S)

    def topics(self) -> dict[str, int]:
        """Return name -> number of partitions for all topics except Kafka's own.

        Raises:
            SourceError: the cluster does not answer, or denies access.
        """
        found = self._query("topics cannot be listed", lambda client: client.list_topics(timeout=CONNECT_S)).topics
        return {name: len(topic.partitions) for name, topic in found.items() if not name.startswith("__")}

    def describe(self, names: list[str]) -> dict[str, TopicState]:
        """Return the state of those topics that exist.

        Raises:
            SourceError: see `topics`, or this user must not see a topic.
        """
        kafka = package("confluent_kafka")
        found = {}
        for name in names:
            try:
                about = self._query(
                    f"topic {name!r} cannot be read", partial(_described, kafka.TopicCollection([name]))
                )
            except SourceError as error:
                if "UNKNOWN_TOPIC_OR_PART" in error.message:
                    continue
                raise
            found[name] = TopicState(str(about.topic_id), len(about.partitions))
        return found

    def resolve(
        self, initializer: KafkaOffsetsInitializer, partitions: list[KafkaTopicPartition], *, is_start: bool = False
    ) -> dict[KafkaTopicPartition, int]:
        """Return the offset for each of these partitions.

        Args:
            is_start: reading begins at the offset, so an offset outside the partition counts as missing.

        Raises:
            SourceError: a partition has no offset, or the cluster does not answer.
        """
        if not partitions:
            return {}
        spec = package("confluent_kafka.admin").OffsetSpec
        match initializer.kind:
            case "earliest":
                return self._listed(partitions, spec.earliest())
            case "latest":
                return self._listed(partitions, spec.latest())
            case "timestamp":
                found = self._listed(partitions, spec.for_timestamp(initializer.timestamp_ms))
                return found | self._listed([p for p in partitions if found[p] < 0], spec.latest())
            case "committed":
                known = self.committed(partitions)
            case _:
                known = {p: offset for p, offset in initializer.given if p in partitions}
        first = self._listed(list(known), spec.earliest())
        last = self._listed(list(known), spec.latest(), committed_only=False)
        out = {p for p, offset in known.items() if is_start and not first[p] <= offset <= last[p]}
        missing = [p for p in partitions if p not in known or p in out]
        if missing and initializer.reset is KafkaOffsetResetStrategy.NONE:
            where = ", ".join(
                f"{p.topic}-{p.partition}{f' ({known[p]}, it has {first[p]} to {last[p]})' if p in out else ''}"
                for p in missing[:5]
            )
            reason = (
                "the group has committed no offsets" if initializer.kind == "committed" else "no offsets were given"
            )
            raise SourceError(
                f"{reason} for {where}{', …' if len(missing) > 5 else ''}, or the topic no longer has them",
                remedy="pass a KafkaOffsetResetStrategy: EARLIEST or LATEST for partitions without valid offsets",
            )
        is_earliest = initializer.reset is KafkaOffsetResetStrategy.EARLIEST
        return known | self._listed(missing, spec.earliest() if is_earliest else spec.latest())

    def _listed(
        self, partitions: list[KafkaTopicPartition], spec: Any, *, committed_only: bool | None = None
    ) -> dict[KafkaTopicPartition, int]:
        if not partitions:
            return {}
        kafka = package("confluent_kafka")
        levels = kafka.IsolationLevel
        committed_only = self._committed_only if committed_only is None else committed_only
        level = levels.READ_COMMITTED if committed_only else levels.READ_UNCOMMITTED

        def query(client: Any) -> dict[KafkaTopicPartition, int]:
            specs = {kafka.TopicPartition(*partition): spec for partition in partitions}
            futures = client.list_offsets(specs, isolation_level=level, request_timeout=CONNECT_S)
            return {
                KafkaTopicPartition(at.topic, at.partition): int(future.result(CONNECT_S + 5).offset)
                for at, future in futures.items()
            }

        names = sorted({partition.topic for partition in partitions})
        return self._query(f"the offsets of {', '.join(map(repr, names))} cannot be read", query)

    def committed(self, partitions: list[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """Return the offsets that the group has committed. Partitions without a committed offset are left out.

        Raises:
            SourceError: see `topics`.
        """
        group = self._properties.get("group.id", "")

        def query(_: Any) -> list[Any]:
            client = create_client(lambda: GroupClient(self._properties, self._complaints), self._properties)
            try:
                found: list[Any] = client.committed(partitions, CONNECT_S)
                return found
            finally:
                client.close()

        if not partitions:
            return {}
        answer = self._query(f"offsets of group {group!r} cannot be read", query)
        return {KafkaTopicPartition(p.topic, p.partition): p.offset for p in answer if p.offset >= 0}

    def close(self) -> None:
        self._admin = None


def _described(collection: Any, client: Any) -> Any:
    future = next(iter(client.describe_topics(collection, request_timeout=CONNECT_S).values()))
    return future.result(CONNECT_S + 5)


def create_client(make: Any, properties: Properties) -> Any:
    """Return the confluent_kafka client that `make` creates.

    Raises:
        InvalidJob: a property is unknown, has a wrong value, or names an unusable file.
    """
    kafka = package("confluent_kafka")
    try:
        return make()
    except kafka.KafkaException as error:
        raise InvalidJob(
            f"Kafka's client rejects a property: {error.args[0].str()}",
            remedy="correct the property. The names are those of librdkafka",
        ) from error
