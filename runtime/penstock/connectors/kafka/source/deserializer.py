"""Messages become records, a batch at a time.

A Python object for a message and one for its value are most of what reading costs, so nothing else is made per message where
it can be helped: JSON values are joined and decoded by one call, as lines of files are, into records that become columns when
an operator asks for them. Only a batch that does not decode is taken apart to find out which of its messages are bad.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.common.errors import InvalidJob, PlatformError, RecordFormatError
from penstock.common.serialization import DeserializationSchema, SimpleStringSchema
from penstock.connectors.formats.changelog.formats import ChangelogFormat
from penstock.connectors.formats.message_format import DecodeMessages, MessageFormat, of_lines
from penstock.connectors.formats.record_format import MALFORMED_RECORDS, MalformedBlock, StreamFormat
from penstock.records.batch import ColumnBatch, RowBatch

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation
    from penstock.records.batch import Batch

_SHOWN = 200


class ConsumerRecord(NamedTuple):
    """A message with all that Kafka knows of it."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    """ms; None: it has none."""
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class RejectedMessage(NamedTuple):
    """A message that could not be read, as it comes out of the side output."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    reason: str


class KafkaRecordDeserializationSchema(ABC):
    """Turns a message, with key, headers, time and place, into a record. Picklable.

    >>> class WithKey(KafkaRecordDeserializationSchema):
    ...     def deserialize(self, record):
    ...         return record.key, record.value
    """

    @abstractmethod
    def deserialize(self, record: ConsumerRecord) -> Any:
        """The record; None drops the message. Whatever is raised makes the message a malformed one."""

    def get_produced_type(self) -> TypeInformation | None:
        """Of the records; None = unknown."""
        return None

    @staticmethod
    def value_only(schema: DeserializationSchema | StreamFormat) -> DeserializationSchema | StreamFormat:
        """The value alone decides (PyFlink's name): as `KafkaSourceBuilder.set_value_only_deserializer`."""
        return schema

    @staticmethod
    def of(function: Callable[[ConsumerRecord], Any], output_type: Any = None) -> KafkaRecordDeserializationSchema:
        """A function of a `ConsumerRecord`."""
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


class MessageDecoder:
    """Makes a batch of messages of one partition.

    Args:
        rejects: malformed messages are handed out; else the first one is an error.
        timestamps: records get the time of their message.
    """

    def __init__(self, deserializer: Deserializer, *, rejects: bool, timestamps: bool) -> None:
        self._rejects = rejects
        self._timestamps = timestamps
        self._rows_of: Callable[[bytes | None], list[Any]] | None = None
        if isinstance(deserializer, ChangelogFormat):
            self._rows_of = deserializer.message_decoder()
        else:
            self._decode = _decoder(deserializer)

    def decode(self, messages: Sequence[Any]) -> tuple[Batch | None, list[Any]]:
        """
        Raises:
            RecordFormatError: a message is malformed, and they are not rejected.
        """
        if self._rows_of is not None:
            return self._changes(self._rows_of, messages)
        try:
            batch = self._decode(messages)
        except PlatformError:  # a schema registry that is away: the message is as good as any
            raise
        except Exception:  # a user's schema may raise anything
            batch = None
        if batch is not None and len(batch) == len(messages):
            return self._timed(batch, messages), []
        return self._one_by_one(messages)

    def _changes(
        self, rows_of: Callable[[bytes | None], list[Any]], messages: Sequence[Any]
    ) -> tuple[Batch | None, list[Any]]:
        """A message has none, one or several records; a tombstone has none."""
        good, values, rejected = [], [], []
        for message in messages:
            try:
                rows = rows_of(message.value())
            except MalformedBlock as error:
                if not self._rejects:
                    raise self._malformed(message, reason_of(error)) from error
                rejected.append(self._rejected(message, reason_of(error)))
                continue
            values += rows
            good += [message] * len(rows)
        return (self._timed(RowBatch(values), good) if values else None), rejected

    def _one_by_one(self, messages: Sequence[Any]) -> tuple[Batch | None, list[Any]]:
        good, values, rejected = [], [], []
        for message in messages:
            try:
                rows = self._decode([message]).rows().values
            except PlatformError:
                raise
            except Exception as error:
                if not self._rejects:
                    raise self._malformed(message, reason_of(error)) from error
                rejected.append(self._rejected(message, reason_of(error)))
                continue
            values += rows
            good += [message] * len(rows)
        if not values:
            return None, rejected
        return self._timed(RowBatch(values), good), rejected

    def _rejected(self, message: Any, reason: str) -> Any:
        whole = record_of(message)
        return RejectedMessage(
            whole.topic, whole.partition, whole.offset, whole.timestamp, whole.key, whole.value, reason
        )

    def _malformed(self, message: Any, reason: str) -> RecordFormatError:
        return RecordFormatError(
            f"malformed message in {message.topic()}-{message.partition()} at offset {message.offset()}: {reason}{shown(message.value())}",
            remedy="correct the producer, or let such messages go to a side output: builder.set_on_error('side-output')",
        )

    def _timed(self, batch: Batch, messages: Sequence[Any]) -> Batch:
        if not self._timestamps:
            return batch
        times = [message.timestamp()[1] for message in messages]
        if times[0] < 0:
            return batch
        if isinstance(batch, ColumnBatch):
            return batch.with_timestamps(np.array(times, np.int64))
        return RowBatch(batch.values, times)


def _decoder(deserializer: Deserializer) -> Callable[[Sequence[Any]], Batch]:
    if isinstance(deserializer, StreamFormat):
        return _of_values(of_lines(deserializer))
    if isinstance(deserializer, KafkaRecordDeserializationSchema):
        whole = deserializer.deserialize
        return lambda messages: RowBatch([r for r in map(whole, map(record_of, messages)) if r is not None])
    if isinstance(deserializer, DeserializationSchema):
        return _of_schema(deserializer)
    raise InvalidJob(
        f"{deserializer!r} is no deserializer",
        remedy="give a DeserializationSchema, a KafkaRecordDeserializationSchema or a format of lines such as JsonLinesFormat",
    )


def _of_schema(schema: DeserializationSchema) -> Callable[[Sequence[Any]], Batch]:
    if isinstance(schema, MessageFormat):
        return _of_values(schema.batch_decoder())
    many: Callable[[Sequence[bytes]], list[Any]] = schema.deserialize_batch
    if type(schema) is SimpleStringSchema:
        charset = schema._charset

        def many(values: Sequence[bytes]) -> list[Any]:
            return [str(value, charset) for value in values]

    return _of_values(lambda values: RowBatch(list(many(values))))


def _of_values(decode_values: DecodeMessages) -> Callable[[Sequence[Any]], Batch]:
    def decode(messages: Sequence[Any]) -> Batch:
        values = [message.value() for message in messages]
        if None in values:
            raise MalformedBlock(_NO_VALUE)
        return decode_values(values)

    return decode


_NO_VALUE = "it has no value (a tombstone)"


def record_of(message: Any) -> ConsumerRecord:
    """A message of confluent_kafka's."""
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


def reason_of(error: Exception) -> str:
    """Why a message could not be read."""
    if isinstance(error, RecordFormatError):
        return error.message
    return str(error) if isinstance(error, MalformedBlock) else f"{type(error).__name__}: {error}"


def shown(value: bytes | None) -> str:
    """The beginning of a message, behind a colon."""
    return "" if value is None else f": {value[:_SHOWN]!r}{'…' if len(value) > _SHOWN else ''}"


__all__ = [
    "MALFORMED_RECORDS",
    "ConsumerRecord",
    "KafkaRecordDeserializationSchema",
    "MessageDecoder",
    "RejectedMessage",
    "reason_of",
    "shown",
]
