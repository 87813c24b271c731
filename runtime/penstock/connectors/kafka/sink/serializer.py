"""The conversion of records into messages: topic, key, value, headers, time and partition of each message.

Settings that are the same for all records are evaluated once per batch. Examples are one topic, or an encoder of lines for a
whole batch. Messages without headers and without their own partitions then go to the client as a batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.serialization import Encoder, SerializationSchema
from penstock.connectors.messages.sink import serialized

Headers = Iterable[tuple[str, bytes | str | None]]


class KafkaTopicSelector(ABC):
    """A function that returns the topic of a record (PyFlink's name)."""

    @abstractmethod
    def apply(self, data: Any, /) -> str: ...


class KafkaRecordSerializationSchema:
    """The settings that convert records into messages. `builder()` returns its builder. The functions get a record."""

    def __init__(
        self,
        topic: str | Callable[[Any], str],
        value: SerializationSchema | Encoder,
        key: SerializationSchema | Callable[[Any], bytes | str | None] | None = None,
        headers: Callable[[Any], Headers | Mapping[str, bytes | str | None]] | None = None,
        partitioner: Callable[[Any], int | None] | None = None,
        timestamp: Callable[[Any], int | None] | None = None,
    ) -> None:
        self.topic = topic
        self._value = value
        self._key = key
        self.headers = headers
        self.partitioner = partitioner
        self.timestamp = timestamp

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        return KafkaRecordSerializationSchemaBuilder()

    @property
    def fixed_topic(self) -> str | None:
        return self.topic if isinstance(self.topic, str) else None

    def validate(self) -> None:
        """Run the checks of key and value that are possible before the job runs.

        Raises:
            SinkError: a schema registry does not answer, or refuses the schema.
        """
        for schema in (self._key, self._value):
            if isinstance(schema, SerializationSchema):
                schema.validate()

    def values(self, records: Sequence[Any]) -> list[bytes | None]:
        """Return the values of messages.

        Raises:
            RecordFormatError: a record does not match the schema.
        """
        return serialized(self._value, records)

    def keys(self, records: Sequence[Any]) -> list[bytes | str | None] | None:
        """Return the keys of messages, or None if messages have no keys."""
        if self._key is None:
            return None
        if isinstance(self._key, SerializationSchema):
            return list(self._key.serialize_batch(records))
        return list(map(self._key, records))

    def topics(self, records: Sequence[Any]) -> list[str]:
        """Return the topics of records.

        Raises:
            RecordFormatError: the selector returns no topic.
        """
        assert callable(self.topic)
        topics = list(map(self.topic, records))
        for record, topic in zip(records, topics, strict=True):
            if not isinstance(topic, str) or not topic:
                raise RecordFormatError(
                    f"the topic selector returned {topic!r} for {str(record)[:200]}, which is not the name of a topic",
                    remedy="return the name of a topic",
                )
        return topics


class KafkaRecordSerializationSchemaBuilder:
    """PyFlink's builder, with the settings that Penstock adds."""

    def __init__(self) -> None:
        self._topic: str | Callable[[Any], str] | None = None
        self._key: Any = None
        self._value: SerializationSchema | Encoder | None = None
        self._headers: Any = None
        self._partitioner: Any = None
        self._timestamp: Any = None

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        self._topic = topic
        return self

    def set_topic_selector(
        self, topic_selector: KafkaTopicSelector | Callable[[Any], str]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set a `KafkaTopicSelector`, or a function, that returns the topic of a record."""
        self._topic = topic_selector.apply if isinstance(topic_selector, KafkaTopicSelector) else topic_selector
        return self

    def set_key_serialization_schema(self, key_serialization_schema: Any) -> KafkaRecordSerializationSchemaBuilder:
        """Set a SerializationSchema, or a function of a record that returns bytes, text or None."""
        self._key = key_serialization_schema
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema | Encoder
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set a SerializationSchema, or an encoder of lines such as `JsonLinesEncoder`, which encodes many records at once."""
        self._value = value_serialization_schema
        return self

    def set_header_provider(self, header_provider: Callable[[Any], Any]) -> KafkaRecordSerializationSchemaBuilder:
        """Set a function that returns the headers of a record: pairs of name and value, or a dict."""
        self._headers = header_provider
        return self

    def set_partitioner(self, partitioner: Callable[[Any], int | None]) -> KafkaRecordSerializationSchemaBuilder:
        """Set a function that returns the partition of a record; None means that the key determines it."""
        self._partitioner = partitioner
        return self

    def set_timestamp_extractor(self, timestamp: Callable[[Any], int | None]) -> KafkaRecordSerializationSchemaBuilder:
        """Set a function that returns the time of a record (ms). By default a message has the event time of its record."""
        self._timestamp = timestamp
        return self

    def build(self) -> KafkaRecordSerializationSchema:
        """Return the schema.

        Raises:
            InvalidJob: the topic or the serializer of values is missing.
        """
        if self._topic is None:
            raise InvalidJob(
                "the record serializer has no topic", remedy="call set_topic('name') or set_topic_selector(function)"
            )
        if not isinstance(self._value, SerializationSchema | Encoder):
            raise InvalidJob(
                f"{self._value!r} cannot serialize values",
                remedy="call set_value_serialization_schema with SimpleStringSchema() or JsonLinesEncoder()",
            )
        return KafkaRecordSerializationSchema(
            self._topic, self._value, self._key, self._headers, self._partitioner, self._timestamp
        )
