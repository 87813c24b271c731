"""Messages become records, a batch at a time, as Kafka's do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.serialization import DeserializationSchema
from penstock.connectors.formats.record_format import StreamFormat
from penstock.connectors.kafka.source.deserializer import MessageDecoder, shown
from penstock.records.batch import Batch, ColumnBatch, RowBatch


class RMQRejectedMessage(NamedTuple):
    """A message that could not be read, as it comes out of the side output."""

    queue: str
    correlation_id: str | bytes | None
    body: bytes
    reason: str


class BodyDecoder(MessageDecoder):
    """Of the messages of a queue. Records have the time of their message, where it has one."""

    def __init__(self, queue: str, schema: DeserializationSchema | StreamFormat, *, rejects: bool) -> None:
        if not isinstance(schema, DeserializationSchema | StreamFormat):
            raise InvalidJob(
                f"{schema!r} is no deserializer of bodies",
                remedy="give a DeserializationSchema, or a format of lines such as JsonLinesFormat",
            )
        super().__init__(schema, rejects=rejects, timestamps=True)
        self._queue = queue

    def _timed(self, batch: Batch, messages: Sequence[Any]) -> Batch:
        times = [message.time for message in messages]
        if None in times:
            return batch
        if isinstance(batch, ColumnBatch):
            return batch.with_timestamps(np.array(times, np.int64))
        return RowBatch(batch.values, times)

    def _rejected(self, message: Any, reason: str) -> RMQRejectedMessage:
        return RMQRejectedMessage(self._queue, message.correlation_id, message.body, reason)

    def _malformed(self, message: Any, reason: str) -> RecordFormatError:
        return RecordFormatError(
            f"malformed message in queue {self._queue!r} (correlation id {message.correlation_id!r}): {reason}{shown(message.body)}",
            remedy="correct the producer, or let such messages go to a side output: RMQSource(…, on_error='side-output'). Until then the "
            "queue gives it again",
        )
