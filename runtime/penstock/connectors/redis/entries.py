"""Entries become records, a batch at a time, as Kafka's messages do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.serialization import DeserializationSchema, SimpleStringSchema
from penstock.connectors.formats.record_format import MalformedBlock, StreamFormat
from penstock.connectors.kafka.source.deserializer import MessageDecoder, shown
from penstock.connectors.redis.tail import Entry
from penstock.records.batch import Batch, ColumnBatch, RowBatch


class RedisEntry(NamedTuple):
    """An entry of a stream. Its fields are text."""

    stream: str
    id: str
    fields: dict[str, str]


class RedisRejectedEntry(NamedTuple):
    """An entry that could not be read, as it comes out of the side output."""

    stream: str
    id: str
    fields: dict[bytes, bytes]
    reason: str


class _Message(NamedTuple):
    """An entry as `MessageDecoder` wants it."""

    entry: Entry
    field: bytes

    def value(self) -> bytes:
        found = self.entry.fields.get(self.field)
        if found is None:
            names = ", ".join(repr(name)[1:] for name in self.entry.fields)
            raise MalformedBlock(f"it has no field {self.field.decode()!r}, but {names}")
        return found


class EntryDecoder(MessageDecoder):
    """Of the entries of a stream. Records have the time in the entry's id."""

    def __init__(
        self, stream: str, schema: DeserializationSchema | StreamFormat | None, field: str, *, rejects: bool
    ) -> None:
        if schema is not None and not isinstance(schema, DeserializationSchema | StreamFormat):
            raise InvalidJob(
                f"{schema!r} is no deserializer of fields",
                remedy="give a DeserializationSchema, or a format of lines such as JsonLinesFormat, or none",
            )
        super().__init__(schema or SimpleStringSchema(), rejects=rejects, timestamps=True)
        self._stream = stream
        self._field = field.encode()
        if schema is None:
            self._decode = self._whole

    def decode(self, messages: Sequence[Any]) -> tuple[Batch | None, list[Any]]:
        return super().decode([_Message(entry, self._field) for entry in messages])

    def _whole(self, messages: Sequence[Any]) -> Batch:
        return RowBatch(
            [
                RedisEntry(
                    self._stream,
                    message.entry.place.id,
                    {name.decode(): value.decode() for name, value in message.entry.fields.items()},
                )
                for message in messages
            ]
        )

    def _timed(self, batch: Batch, messages: Sequence[Any]) -> Batch:
        times = [message.entry.time for message in messages]
        if isinstance(batch, ColumnBatch):
            return batch.with_timestamps(np.array(times, np.int64))
        return RowBatch(batch.values, times)

    def _rejected(self, message: Any, reason: str) -> RedisRejectedEntry:
        return RedisRejectedEntry(self._stream, message.entry.place.id, message.entry.fields, reason)

    def _malformed(self, message: Any, reason: str) -> RecordFormatError:
        body = message.entry.fields.get(self._field)
        return RecordFormatError(
            f"malformed entry {message.entry.place.id} of stream {self._stream!r}: {reason}{'' if body is None else shown(body)}",
            remedy="correct the producer, or let such entries go to a side output: RedisStreamSource(…, on_error='side-output')",
        )
