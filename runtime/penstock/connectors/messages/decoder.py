"""Convert messages to records, one batch at a time.

Creating Python objects for a message and its value is most of the cost of reading. So the decoder creates no other object per message if
possible. It joins JSON values and decodes them in one call, like the lines of files. The records become columns when an operator
requests columns. If a batch cannot be decoded, the decoder decodes its messages one by one to find the malformed
messages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.common.errors import InvalidJob, PlatformError, RecordFormatError
from penstock.common.serialization import DeserializationSchema, SimpleStringSchema
from penstock.connectors.formats.changelog.formats import ChangelogFormat
from penstock.connectors.formats.message_format import DecodeMessages, MessageFormat, of_lines
from penstock.connectors.formats.record_format import MalformedBlock, StreamFormat
from penstock.records.batch import ColumnBatch, RowBatch

if TYPE_CHECKING:
    from penstock.records.batch import Batch

_SHOWN = 200
_NO_VALUE = "it has no value (a tombstone)"
DecodeBatch = Callable[[Sequence[Any]], "Batch"]


class MessageDecoder(ABC):
    """A decoder for batches of messages. A message has `value()`, its bytes or None, and `time`, in ms or None.

    Args:
        schema: the decoder of values.
        rejects: collect malformed messages. Otherwise the first malformed message is an error.
    """

    def __init__(self, schema: Any, *, rejects: bool) -> None:
        self._rejects = rejects
        self._rows_of: Callable[[bytes | None], list[Any]] | None = None
        if isinstance(schema, ChangelogFormat):
            self._rows_of = schema.message_decoder()
        else:
            self._decode = self._decoder_of(schema)

    def decode(self, messages: Sequence[Any]) -> tuple[Batch | None, list[Any]]:
        """Convert messages to a batch. Return the batch and the malformed messages.

        Raises:
            RecordFormatError: a message is malformed, and the decoder does not collect malformed messages.
        """
        if self._rows_of is not None:
            rows_of = self._rows_of
            return self._one_by_one(messages, lambda message: rows_of(message.value()), MalformedBlock)
        try:
            batch = self._decode(messages)
        except PlatformError:  # the schema registry is unavailable, so the message may be valid
            raise
        except Exception:  # a user's schema may raise any exception
            batch = None
        if batch is not None and len(batch) == len(messages):
            return self._with_times(batch, messages), []
        return self._one_by_one(messages, lambda message: self._decode([message]).rows().values, Exception)

    def _one_by_one(
        self, messages: Sequence[Any], records_of: Callable[[Any], list[Any]], kind: type[Exception]
    ) -> tuple[Batch | None, list[Any]]:
        """Decode each message. `kind` is the class of the errors that mean a malformed message.

        A changelog message has any number of records, and a tombstone has no record.
        """
        good, values, rejected = [], [], []
        for message in messages:
            try:
                records = records_of(message)
            except PlatformError:
                raise
            except kind as error:
                if not self._rejects:
                    raise self._malformed(message, reason_of(error)) from error
                rejected.append(self._rejected(message, reason_of(error)))
                continue
            values += records
            good += [message] * len(records)
        return (self._with_times(RowBatch(values), good) if values else None), rejected

    def _with_times(self, batch: Batch, messages: Sequence[Any]) -> Batch:
        times = self._times(messages)
        if times is None:
            return batch
        if isinstance(batch, ColumnBatch):
            return batch.with_timestamps(np.array(times, np.int64))
        return RowBatch(batch.values, times)

    def _times(self, messages: Sequence[Any]) -> list[int] | None:
        """Return the times of the messages in ms, or None if messages have no time."""
        times = [message.time for message in messages]
        return None if None in times else times

    def _decoder_of(self, schema: Any) -> DecodeBatch:
        if isinstance(schema, StreamFormat):
            return _of_values(of_lines(schema))
        if isinstance(schema, DeserializationSchema):
            return _of_schema(schema)
        raise InvalidJob(
            f"{schema!r} is not a deserializer of messages",
            remedy="pass a DeserializationSchema, or a format of lines such as JsonLinesFormat",
        )

    @abstractmethod
    def _rejected(self, message: Any, reason: str) -> Any:
        """Return a malformed message in the form that the side output receives."""

    @abstractmethod
    def _malformed(self, message: Any, reason: str) -> RecordFormatError:
        """Return the error that names a malformed message."""


def _of_schema(schema: DeserializationSchema) -> DecodeBatch:
    if isinstance(schema, MessageFormat):
        return _of_values(schema.batch_decoder())
    many: Callable[[Sequence[bytes]], list[Any]] = schema.deserialize_batch
    if type(schema) is SimpleStringSchema:
        charset = schema._charset

        def many(values: Sequence[bytes]) -> list[Any]:
            return [str(value, charset) for value in values]

    return _of_values(lambda values: RowBatch(list(many(values))))


def _of_values(decode_values: DecodeMessages) -> DecodeBatch:
    def decode(messages: Sequence[Any]) -> Batch:
        values = [message.value() for message in messages]
        if None in values:
            raise MalformedBlock(_NO_VALUE)
        return decode_values(values)

    return decode


def reason_of(error: Exception) -> str:
    """Return the reason why a message could not be decoded."""
    if isinstance(error, RecordFormatError):
        return error.message
    return str(error) if isinstance(error, MalformedBlock) else f"{type(error).__name__}: {error}"


def beginning_of(value: bytes | None) -> str:
    """Return a colon and the beginning of a message, for an error. Return no text for a message without a value."""
    return "" if value is None else f": {value[:_SHOWN]!r}{'…' if len(value) > _SHOWN else ''}"
