"""The decoder of a Kafka source: from values alone, or from whole messages with key, headers, time and position."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.common.errors import RecordFormatError
from penstock.common.serialization import DeserializationSchema
from penstock.connectors.formats.record_format import StreamFormat
from penstock.connectors.messages.decoder import DecodeBatch, MessageDecoder, beginning_of
from penstock.records.batch import RowBatch

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation


class ConsumerRecord(NamedTuple):
    """A message with all its metadata from Kafka."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    """Time in ms. None means that the message has no time."""
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class RejectedMessage(NamedTuple):
    """A message that could not be decoded, as the side output receives it."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    reason: str


class KafkaRecordDeserializationSchema(ABC):
    """A function from a message, with key, headers, time and position, to a record. It must be picklable.

    >>> class WithKey(KafkaRecordDeserializationSchema):
    ...     def deserialize(self, record):
    ...         return record.key, record.value
    """

    @abstractmethod
    def deserialize(self, record: ConsumerRecord, /) -> Any:
        """Return the record, or None to drop the message. Any exception marks the message as malformed."""

    def get_produced_type(self) -> TypeInformation | None:
        """Return the type of the records. None means unknown."""
        return None

    @staticmethod
    def value_only(schema: DeserializationSchema | StreamFormat) -> DeserializationSchema | StreamFormat:
        """Return the schema itself, which decodes only the value (PyFlink's name). See `KafkaSourceBuilder.set_value_only_deserializer`."""
        return schema

    @staticmethod
    def of(function: Callable[[ConsumerRecord], Any], output_type: Any = None) -> KafkaRecordDeserializationSchema:
        """Wrap a function of a `ConsumerRecord`."""
        return _OfFunction(function, output_type)


class _OfFunction(KafkaRecordDeserializationSchema):
    def __init__(self, function: Callable[[ConsumerRecord], Any], output_type: Any) -> None:
        self._function = function
        self._type = output_type

    def deserialize(self, record: ConsumerRecord) -> Any:
        return self._function(record)

    def get_produced_type(self) -> Any:
        return self._type


Deserializer = KafkaRecordDeserializationSchema | DeserializationSchema | StreamFormat


class KafkaDecoder(MessageDecoder):
    """The decoder of a partition's messages, as confluent_kafka returns them.

    Args:
        timestamps: give each record the time of its message as its timestamp.
    """

    def __init__(self, deserializer: Deserializer, *, rejects: bool, timestamps: bool) -> None:
        super().__init__(deserializer, rejects=rejects)
        self._timestamps = timestamps

    def _decoder_of(self, schema: Any) -> DecodeBatch:
        if not isinstance(schema, KafkaRecordDeserializationSchema):
            return super()._decoder_of(schema)
        whole = schema.deserialize
        return lambda messages: RowBatch([r for r in map(whole, map(record_of, messages)) if r is not None])

    def _times(self, messages: Sequence[Any]) -> list[int] | None:
        if not self._timestamps:
            return None
        times = [message.timestamp()[1] for message in messages]
        return None if times[0] < 0 else times

    def _rejected(self, message: Any, reason: str) -> RejectedMessage:
        return RejectedMessage(*record_of(message)[:-1], reason)

    def _malformed(self, message: Any, reason: str) -> RecordFormatError:
        return RecordFormatError(
            f"malformed message in {message.topic()}-{message.partition()} at offset {message.offset()}: {reason}{beginning_of(message.value())}",
            remedy="correct the producer, or send such messages to a side output: builder.set_on_error('side-output')",
        )


def record_of(message: Any) -> ConsumerRecord:
    """Convert a message of confluent_kafka."""
    kind, time = message.timestamp()
    return ConsumerRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        time if kind else None,
        message.key(),
        message.value(),
        message.headers() or [],
    )
