"""`KafkaSource`: read records of Kafka topics, with PyFlink's names.

KafkaSource.builder().set_bootstrap_servers("kafka:9092").set_topics("readings").set_group_id("alerts")
    .set_starting_offsets(KafkaOffsetsInitializer.earliest()).set_value_only_deserializer(JsonLinesFormat(Reading)).build()
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from penstock.common.errors import InvalidJob
from penstock.common.program.one_time_warning import warn_deprecated
from penstock.common.serialization import DeserializationSchema
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.core.source import ReaderContext, SourceReader
from penstock.connectors.formats.record_format import MALFORMED_RECORDS, StreamFormat
from penstock.connectors.kafka.client import Properties, package
from penstock.connectors.kafka.client_builder import ClientBuilder
from penstock.connectors.kafka.offsets import KafkaOffsetsInitializer, KafkaTopicPartition
from penstock.connectors.kafka.source.deserializer import Deserializer, KafkaDecoder
from penstock.connectors.kafka.source.enumerator import KafkaEnumerator, Subscription
from penstock.connectors.kafka.source.reader import KafkaSourceReader, check_properties
from penstock.connectors.messages.source import MessageSource, check_choice, error_tag_of

_DISCOVERY = "partition.discovery.interval.ms"
_COMMITS = "commit.offsets.on.checkpoint"
_DEFAULT_DISCOVERY_MS = 5 * 60 * 1000
_OWN = (_DISCOVERY, _COMMITS)
"""Properties of Flink's source that are not properties of a Kafka client."""


class KafkaSource(MessageSource):
    """A source that `builder()` creates."""

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
        restarts_recreated: bool,
    ) -> None:
        super().__init__(deserializer, error_tag)
        self.subscription = subscription
        self.properties = dict(properties)
        self.bounded = bounded
        self._starting = starting
        self._stopping = stopping
        self._timestamps = timestamps
        self._restarts_recreated = restarts_recreated

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
            restarts_recreated=self._restarts_recreated,
        )

    def create_reader(self, context: ReaderContext) -> SourceReader:
        decoder = KafkaDecoder(self.schema, rejects=self.rejects, timestamps=self._timestamps)
        return KafkaSourceReader(self._client_properties, decoder, context, commits=self._commits)

    @property
    def _commits(self) -> bool:
        return "group.id" in self.properties and self.properties.get(_COMMITS, "true") == "true"

    def validate(self) -> None:
        """Check that the cluster has the partitions and their offsets, and that the group accepts commits.

        Raises:
            InvalidJob: a package is missing, or a property is wrong.
            SourceError: the cluster or a schema registry does not answer or refuses access, or a topic does not exist.
        """
        if isinstance(self.schema, DeserializationSchema):
            self.schema.validate()
        check_properties(self._client_properties)
        enumerator = self.create_enumerator()
        try:
            enumerator.discover()
            if self._commits:
                enumerator.check_group()
        finally:
            enumerator.close()


class KafkaSourceBuilder(ClientBuilder):
    """PyFlink's builder of a KafkaSource, with Penstock's additions."""

    def __init__(self) -> None:
        super().__init__()
        self._subscriptions: list[Subscription] = []
        self._starting: KafkaOffsetsInitializer | None = None
        self._stopping: KafkaOffsetsInitializer | None = None
        self._bounded = False
        self._deserializer: Deserializer | None = None
        self._error_tag: str | None = None
        self._timestamps = True
        self._restarts_recreated = False

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """Set the group whose offsets are committed at complete checkpoints, for monitoring. Without a group, no offsets are
        committed."""
        return self.set_property("group.id", group_id)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        self._subscriptions.append(Subscription(topics=topics))
        return self

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Set a regular expression. The source reads all topics whose whole name matches, including topics created later."""
        try:
            re.compile(topic_pattern)
        except re.error as error:
            raise InvalidJob(
                f"topic pattern {topic_pattern!r} is not a regular expression: {error}", remedy="correct the pattern"
            ) from error
        self._subscriptions.append(Subscription(pattern=topic_pattern))
        return self

    def set_partitions(self, partitions: Iterable[KafkaTopicPartition]) -> KafkaSourceBuilder:
        chosen = tuple(sorted(KafkaTopicPartition(*partition) for partition in partitions))
        self._subscriptions.append(Subscription(partitions=chosen))
        return self

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Set where the source begins to read at its first start. A checkpoint's offsets take precedence.

        If no offsets are set, `auto.offset.reset` decides: "latest", or otherwise the earliest records.
        """
        self._starting = starting_offsets_initializer
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """End the job when every partition was read up to these offsets."""
        self._stopping, self._bounded = stopping_offsets_initializer, True
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """End partitions at these offsets, although the source still counts as unbounded."""
        self._stopping, self._bounded = stopping_offsets_initializer, False
        return self

    def set_value_only_deserializer(
        self, deserialization_schema: DeserializationSchema | StreamFormat
    ) -> KafkaSourceBuilder:
        """Set the decoder of values. A format of lines, such as `JsonLinesFormat`, decodes batches into columns."""
        self._deserializer = deserialization_schema
        return self

    def set_deserializer(self, record_deserializer: Deserializer) -> KafkaSourceBuilder:
        """Set the decoder of whole messages: with key, headers, time, topic, partition and offset."""
        self._deserializer = record_deserializer
        return self

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        return self.set_property("client.id", prefix)

    def set_discovery_interval(self, interval: TimeLike) -> KafkaSourceBuilder:
        """Set the interval between two discoveries of topics and partitions. The default is five minutes."""
        return self.set_property(_DISCOVERY, as_millis(interval, "interval"))

    def set_on_error(self, on_error: str, error_tag: Any = MALFORMED_RECORDS) -> KafkaSourceBuilder:
        """Set how to treat a message that cannot be decoded: "fail", or "side-output" to `error_tag` as `RejectedMessage`."""
        self._error_tag = error_tag_of(on_error, error_tag)
        return self

    def set_record_timestamps(self, *, used: bool) -> KafkaSourceBuilder:
        """Set whether records get the time of their message (the default). Reading is slightly faster without timestamps."""
        self._timestamps = used
        return self

    def set_recreated_topics(self, what: str) -> KafkaSourceBuilder:
        """Set how to treat a topic that was deleted and created again: "fail", or "restart" at the beginning of the new topic.

        The deletion of a topic that matches a pattern is also an error. "restart" instead stops reading this topic. Each discovery
        (`set_discovery_interval`) checks for such topics. The job needs a new attempt to start such a topic again or to
        stop reading it. "start-anew" is the deprecated name of "restart", which release 0.5 removes.

        Raises:
            InvalidJob: `what` is another value.
        """
        if what == "start-anew":
            warn_deprecated('KafkaSourceBuilder.set_recreated_topics("start-anew")', '"restart"', "0.5")
            what = "restart"
        check_choice("recreated topics", what, "fail", "restart")
        self._restarts_recreated = what == "restart"
        return self

    def build(self) -> KafkaSource:
        """Return the source with these settings.

        Raises:
            InvalidJob: a setting is missing, settings contradict each other, or the extra is not installed.
        """
        package("confluent_kafka")
        self._check_servers("a Kafka source")
        if len(self._subscriptions) != 1:
            requested = " and ".join(map(str, self._subscriptions)) or "none"
            raise InvalidJob(
                f"a Kafka source reads either topics, a pattern or partitions, got {requested}",
                remedy="call exactly one of set_topics, set_topic_pattern and set_partitions, and call it once",
            )
        if self._deserializer is None:
            raise InvalidJob(
                "a Kafka source needs a deserializer",
                remedy="call set_value_only_deserializer with SimpleStringSchema() or JsonLinesFormat(fields)",
            )
        starting = self._starting or _by_reset(self._properties.get("auto.offset.reset", ""))
        for initializer in (starting, self._stopping):
            if initializer is not None and initializer.kind == "committed" and "group.id" not in self._properties:
                raise InvalidJob("committed offsets need a consumer group", remedy="call set_group_id('…')")
        if self._stopping is not None and self._stopping.kind == "earliest":
            raise InvalidJob(
                "a source that ends at the earliest offsets reads nothing", remedy="set the end to latest()"
            )
        deserializer, error_tag = self._deserializer, self._error_tag
        if isinstance(deserializer, StreamFormat) and deserializer.rejects and error_tag is None:
            error_tag = deserializer.error_tag
        KafkaDecoder(deserializer, rejects=False, timestamps=False)
        return KafkaSource(
            self._subscriptions[0],
            self._properties,
            deserializer,
            starting,
            self._stopping,
            bounded=self._bounded,
            error_tag=error_tag,
            timestamps=self._timestamps,
            restarts_recreated=self._restarts_recreated,
        )


def _by_reset(reset: str) -> KafkaOffsetsInitializer:
    """Return where a source without starting offsets begins, by Kafka's `auto.offset.reset`."""
    is_latest = reset in ("latest", "largest", "end")
    return KafkaOffsetsInitializer.latest() if is_latest else KafkaOffsetsInitializer.earliest()
