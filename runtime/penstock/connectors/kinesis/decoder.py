"""The decoder of the data of Kinesis records."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.common.errors import RecordFormatError
from penstock.connectors.kinesis.place import Record
from penstock.connectors.messages.decoder import MessageDecoder, beginning_of


class KinesisRejectedRecord(NamedTuple):
    """A record that could not be decoded, as the side output receives it."""

    stream: str
    shard: str
    sequence_number: str
    partition_key: str
    data: bytes
    reason: str


class DataDecoder(MessageDecoder):
    """The decoder of a shard's records."""

    def __init__(self, stream: str, shard: str, schema: Any, *, rejects: bool) -> None:
        super().__init__(schema, rejects=rejects)
        self._stream, self._shard = stream, shard

    def _rejected(self, message: Record, reason: str) -> KinesisRejectedRecord:
        return KinesisRejectedRecord(self._stream, self._shard, message.sequence, message.key, message.data, reason)

    def _malformed(self, message: Record, reason: str) -> RecordFormatError:
        return RecordFormatError(
            f"malformed record {message.sequence} of {self._shard} of stream {self._stream!r}: {reason}{beginning_of(message.data)}",
            remedy="correct the producer, or send such records to a side output: KinesisSource(…, on_error='side-output')",
        )
