"""`KafkaSource`: records of Kafka topics, under PyFlink's names.

KafkaSource.builder().set_bootstrap_servers("kafka:9092").set_topics("readings").set_group_id("alerts")
    .set_starting_offsets(KafkaOffsetsInitializer.earliest()).set_value_only_deserializer(JsonLinesFormat(Reading)).build()
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from penstock.common.errors import InvalidJob
from penstock.common.serialization import DeserializationSchema
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.formats.record_format import MALFORMED_RECORDS, StreamFormat
from penstock.connectors.kafka.client import Properties, package
from penstock.connectors.kafka.client_builder import ClientBuilder
from penstock.connectors.kafka.offsets import KafkaOffsetsInitializer, KafkaTopicPartition
from penstock.connectors.kafka.source.deserializer import (
    Deserializer,
    MessageDecoder,
)
from penstock.connectors.kafka.source.enumerator import KafkaEnumerator, Subscription
from penstock.connectors.kafka.source.reader import KafkaSourceReader, check_properties
from penstock.connectors.source import ReaderContext, Source, SourceReader

_DISCOVERY = "partition.discovery.interval.ms"
_COMMITS = "commit.offsets.on.checkpoint"
_DEFAULT_DISCOVERY_MS = 5 * 60 * 1000
_OWN = (_DISCOVERY, _COMMITS)
"""Properties of Flink's source that no client knows."""


class KafkaSource(Source):
    """Made by `builder()`."""

    def __init__(
        self,
        subscription: Subscription,
        properties: Properties,
        deserializer: Deserializer,
        starting: KafkaOffsetsInitializer,
        stopping: KafkaOffsetsInitializer | None,
        *,
        bounded: bool,
        error_tag: str | None,
        timestamps: bool,
        starts_anew: bool,
    ) -> None:
        self.subscription = subscription
        self.properties = dict(properties)
        self.bounded = bounded
        self._deserializer = deserializer
        self._starting = starting
        self._stopping = stopping
        self._error_tag = error_tag
        self._timestamps = timestamps
        self._starts_anew = starts_anew

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        return KafkaSourceBuilder()

    @property
    def _client_properties(self) -> dict[str, str]:
        return {name: value for name, value in self.properties.items() if name not in _OWN}

    def create_enumerator(self) -> KafkaEnumerator:
        interval = int(self.properties.get(_DISCOVERY, _DEFAULT_DISCOVERY_MS))
        return KafkaEnumerator(
            self.subscription,
            self._client_properties,
            self._starting,
            self._stopping,
            self.properties.get("isolation.level", "read_uncommitted"),
            interval if interval > 0 else None,
            ends=self.bounded,
            starts_anew=self._starts_anew,
        )

    def create_reader(self, context: ReaderContext) -> SourceReader:
        decoder = MessageDecoder(self._deserializer, rejects=self._error_tag is not None, timestamps=self._timestamps)
        return KafkaSourceReader(self._client_properties, decoder, context, commits=self._commits)

    @property
    def _commits(self) -> bool:
        return "group.id" in self.properties and self.properties.get(_COMMITS, "true") == "true"

    def produced_type(self) -> Any:
        if isinstance(self._deserializer, StreamFormat):
            return self._deserializer.produced_type()
        return self._deserializer.get_produced_type()

    def side_output_tags(self) -> tuple[str, ...]:
        return () if self._error_tag is None else (self._error_tag,)

    def validate(self) -> None:
        """Asks the cluster for the partitions, where they begin, and for the group that offsets are committed to.

        Raises:
            InvalidJob: a package is missing, or a property is wrong.
            SourceError: the cluster, or a schema registry, does not answer or does not let us, or there is no such topic.
        """
        if isinstance(self._deserializer, DeserializationSchema):
            self._deserializer.validate()
        check_properties(self._client_properties)
        enumerator = self.create_enumerator()
        try:
            enumerator.discover()
            if self._commits:
                enumerator.check_group()
        finally:
            enumerator.close()


class KafkaSourceBuilder(ClientBuilder):
    """PyFlink's builder of a KafkaSource, with what Penstock adds."""

    def __init__(self) -> None:
        super().__init__()
        self._subscriptions: list[Subscription] = []
        self._starting = KafkaOffsetsInitializer.earliest()
        self._stopping: KafkaOffsetsInitializer | None = None
        self._bounded = False
        self._deserializer: Deserializer | None = None
        self._error_tag: str | None = None
        self._timestamps = True
        self._starts_anew = False

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """The group whose offsets are committed at complete checkpoints, for whoever watches it; none is without one."""
        return self.set_property("group.id", group_id)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        self._subscriptions.append(Subscription(topics=topics))
        return self

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """All topics whose whole name fits this regular expression, also those made later."""
        try:
            re.compile(topic_pattern)
        except re.error as error:
            raise InvalidJob(f"topic pattern {topic_pattern!r}: {error}", remedy="give a regular expression") from error
        self._subscriptions.append(Subscription(pattern=topic_pattern))
        return self

    def set_partitions(self, partitions: Iterable[KafkaTopicPartition]) -> KafkaSourceBuilder:
        chosen = tuple(sorted(KafkaTopicPartition(*partition) for partition in partitions))
        self._subscriptions.append(Subscription(partitions=chosen))
        return self

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Where the first start begins; the earliest records unless said. What a checkpoint holds goes over it."""
        self._starting = starting_offsets_initializer
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """The job ends when every partition was read up to these offsets."""
        self._stopping, self._bounded = stopping_offsets_initializer, True
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Partitions end at these offsets, and the source counts as unbounded all the same."""
        self._stopping, self._bounded = stopping_offsets_initializer, False
        return self

    def set_value_only_deserializer(
        self, deserialization_schema: DeserializationSchema | StreamFormat
    ) -> KafkaSourceBuilder:
        """How values become records. A format of lines, such as `JsonLinesFormat`, decodes many at once into columns."""
        self._deserializer = deserialization_schema
        return self

    def set_deserializer(self, record_deserializer: Deserializer) -> KafkaSourceBuilder:
        """How whole messages become records: with key, headers, time, topic, partition and offset."""
        self._deserializer = record_deserializer
        return self

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        return self.set_property("client.id", prefix)

    def set_discovery_interval(self, interval: TimeLike) -> KafkaSourceBuilder:
        """How often topics and partitions are looked for; every five minutes unless said."""
        return self.set_property(_DISCOVERY, as_millis(interval, "interval"))

    def set_on_error(self, on_error: str, error_tag: Any = MALFORMED_RECORDS) -> KafkaSourceBuilder:
        """What becomes of a message that cannot be read: "fail", or "side-output" to `error_tag` as `RejectedMessage`."""
        if on_error not in ("fail", "side-output"):
            raise InvalidJob(f"on_error={on_error!r}", remedy="write 'fail' or 'side-output'")
        self._error_tag = getattr(error_tag, "tag_id", error_tag) if on_error == "side-output" else None
        return self

    def set_record_timestamps(self, *, used: bool) -> KafkaSourceBuilder:
        """Whether records get the time of their message (the default); without it reading costs a little less."""
        self._timestamps = used
        return self

    def set_recreated_topics(self, what: str) -> KafkaSourceBuilder:
        """A topic that was deleted and made again: "fail", or "start-anew" with the beginning of the new one.

        A topic of a pattern that is deleted is an error, too, or read no more with "start-anew". Either is noticed when topics
        are looked for (`set_discovery_interval`), and takes a new attempt.
        """
        if what not in ("fail", "start-anew"):
            raise InvalidJob(f"recreated topics: {what!r}", remedy="write 'fail' or 'start-anew'")
        self._starts_anew = what == "start-anew"
        return self

    def build(self) -> KafkaSource:
        """
        Raises:
            InvalidJob: something is missing, contradicts itself, or the extra is not installed.
        """
        package("confluent_kafka")
        self._check_servers("a Kafka source")
        if len(self._subscriptions) != 1:
            given = " and ".join(map(str, self._subscriptions)) or "none"
            raise InvalidJob(
                f"a Kafka source reads topics, a pattern or partitions; given: {given}",
                remedy="call one of set_topics, set_topic_pattern, set_partitions, once",
            )
        if self._deserializer is None:
            raise InvalidJob(
                "a Kafka source without a deserializer",
                remedy="set_value_only_deserializer(SimpleStringSchema()) or JsonLinesFormat(fields)",
            )
        for initializer in (self._starting, self._stopping):
            if initializer is not None and initializer.kind == "committed" and "group.id" not in self._properties:
                raise InvalidJob("committed offsets without a group", remedy="set_group_id('…')")
        if self._stopping is not None and self._stopping.kind == "earliest":
            raise InvalidJob("a source that ends at the earliest offsets reads nothing", remedy="end at latest()")
        deserializer, error_tag = self._deserializer, self._error_tag
        if isinstance(deserializer, StreamFormat) and deserializer.rejects and error_tag is None:
            error_tag = deserializer.error_tag
        MessageDecoder(deserializer, rejects=False, timestamps=False)
        return KafkaSource(
            self._subscriptions[0],
            self._properties,
            deserializer,
            self._starting,
            self._stopping,
            bounded=self._bounded,
            error_tag=error_tag,
            timestamps=self._timestamps,
            starts_anew=self._starts_anew,
        )
