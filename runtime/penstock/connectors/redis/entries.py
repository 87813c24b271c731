"""Convert entries to records in batches, as for Kafka's messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.common.errors import RecordFormatError
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.formats.record_format import MalformedBlock
from penstock.connectors.messages.decoder import MessageDecoder, beginning_of
from penstock.connectors.redis.tail import Entry
from penstock.records.batch import Batch, RowBatch


class RedisEntry(NamedTuple):
    """An entry of a stream. Its fields are text."""

    stream: str
    id: str
    fields: dict[str, str]


class RedisRejectedEntry(NamedTuple):
    """An entry that could not be decoded, as the side output receives it."""

    stream: str
    id: str
    fields: dict[bytes, bytes]
    reason: str


class _Message(NamedTuple):
    """An entry in the form that `MessageDecoder` expects."""

    entry: Entry
    field: bytes

    def value(self) -> bytes:
        found = self.entry.fields.get(self.field)
        if found is None:
            names = ", ".join(repr(name)[1:] for name in self.entry.fields)
            raise MalformedBlock(f"it has no field {self.field.decode()!r}, but only {names}")
        return found

    @property
    def time(self) -> int:
        return self.entry.time


class EntryDecoder(MessageDecoder):
    """The decoder of a stream's entries. A record's timestamp is the time in its entry's id."""

    def __init__(self, stream: str, schema: Any, field: str, *, rejects: bool) -> None:
        super().__init__(SimpleStringSchema() if schema is None else schema, rejects=rejects)
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

    def _rejected(self, message: Any, reason: str) -> RedisRejectedEntry:
        return RedisRejectedEntry(self._stream, message.entry.place.id, message.entry.fields, reason)

    def _malformed(self, message: Any, reason: str) -> RecordFormatError:
        body = message.entry.fields.get(self._field)
        return RecordFormatError(
            f"malformed entry {message.entry.place.id} of stream {self._stream!r}: {reason}{beginning_of(body)}",
            remedy="correct the producer, or send such entries to a side output: RedisStreamSource(…, on_error='side-output')",
        )
