"""Records become messages: topic, key, value, headers, time and partition of each.

What can be said for all records at once is said once: one topic, values of an encoder of lines, which encodes a batch by
one call. Messages without headers and partitions of their own then go to the client by the batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.serialization import Encoder, SerializationSchema

Headers = Iterable[tuple[str, bytes | str | None]]


class KafkaTopicSelector(ABC):
    """Says which topic a record goes to (PyFlink's name)."""

    @abstractmethod
    def apply(self, data: Any) -> str: ...


class KafkaRecordSerializationSchema:
    """Made by `builder()`. Functions are the user's; they get a record."""

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
        """What key and value can be checked for before anything runs.

        Raises:
            SinkError: a schema registry does not answer, or does not take the schema.
        """
        for schema in (self._key, self._value):
            if isinstance(schema, SerializationSchema):
                schema.validate()

    def values(self, records: Sequence[Any]) -> list[bytes | None]:
        """
        Raises:
            RecordFormatError: a record does not fit.
        """
        if isinstance(self._value, SerializationSchema):
            return list(self._value.serialize_batch(records))
        lines = self._value.encode_batch(records).split(b"\n")
        if len(lines) == len(records) + 1 and not lines[-1]:
            del lines[-1]
            return list(lines)
        return [self._value.encode(record).removesuffix(b"\n") for record in records]

    def keys(self, records: Sequence[Any]) -> list[bytes | str | None] | None:
        """None: messages have no keys."""
        if self._key is None:
            return None
        if isinstance(self._key, SerializationSchema):
            return list(self._key.serialize_batch(records))
        return list(map(self._key, records))

    def topics(self, records: Sequence[Any]) -> list[str]:
        """
        Raises:
            RecordFormatError: the selector gives no topic.
        """
        assert callable(self.topic)
        topics = list(map(self.topic, records))
        for record, topic in zip(records, topics, strict=True):
            if not isinstance(topic, str) or not topic:
                raise RecordFormatError(
                    f"the topic selector gives {topic!r} for {str(record)[:200]}",
                    remedy="let it give the name of a topic",
                )
        return topics


class KafkaRecordSerializationSchemaBuilder:
    """PyFlink's builder, with what Penstock adds."""

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
        """A `KafkaTopicSelector`, or a function of a record, that gives its topic."""
        self._topic = topic_selector.apply if isinstance(topic_selector, KafkaTopicSelector) else topic_selector
        return self

    def set_key_serialization_schema(self, key_serialization_schema: Any) -> KafkaRecordSerializationSchemaBuilder:
        """A SerializationSchema, or a function of a record that gives bytes, text or None."""
        self._key = key_serialization_schema
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema | Encoder
    ) -> KafkaRecordSerializationSchemaBuilder:
        """A SerializationSchema, or an encoder of lines such as `JsonLinesEncoder`, which encodes many records at once."""
        self._value = value_serialization_schema
        return self

    def set_header_provider(self, header_provider: Callable[[Any], Any]) -> KafkaRecordSerializationSchemaBuilder:
        """A function of a record that gives its headers: pairs of name and value, or a dict."""
        self._headers = header_provider
        return self

    def set_partitioner(self, partitioner: Callable[[Any], int | None]) -> KafkaRecordSerializationSchemaBuilder:
        """A function of a record that gives its partition; None: by its key."""
        self._partitioner = partitioner
        return self

    def set_timestamp_extractor(self, timestamp: Callable[[Any], int | None]) -> KafkaRecordSerializationSchemaBuilder:
        """A function of a record that gives its time (ms); unless set, a message has the event time of its record."""
        self._timestamp = timestamp
        return self

    def build(self) -> KafkaRecordSerializationSchema:
        """
        Raises:
            InvalidJob: topic or value are missing.
        """
        if self._topic is None:
            raise InvalidJob("messages without a topic", remedy="set_topic('name') or set_topic_selector(function)")
        if not isinstance(self._value, SerializationSchema | Encoder):
            raise InvalidJob(
                f"values cannot be made by {self._value!r}",
                remedy="set_value_serialization_schema(SimpleStringSchema()) or JsonLinesEncoder()",
            )
        return KafkaRecordSerializationSchema(
            self._topic, self._value, self._key, self._headers, self._partitioner, self._timestamp
        )
