"""Convert messages to records in batches, as for Kafka's messages."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.common.errors import RecordFormatError
from penstock.connectors.messages.decoder import MessageDecoder, beginning_of


class RMQRejectedMessage(NamedTuple):
    """A message that could not be decoded, as the side output receives it."""

    queue: str
    correlation_id: str | bytes | None
    body: bytes
    reason: str


class BodyDecoder(MessageDecoder):
    """The decoder of a queue's messages. A record gets its message's time if the message has one."""

    def __init__(self, queue: str, schema: Any, *, rejects: bool) -> None:
        super().__init__(schema, rejects=rejects)
        self._queue = queue

    def _rejected(self, message: Any, reason: str) -> RMQRejectedMessage:
        return RMQRejectedMessage(self._queue, message.correlation_id, message.body, reason)

    def _malformed(self, message: Any, reason: str) -> RecordFormatError:
        return RecordFormatError(
            f"malformed message in queue {self._queue!r} (correlation id {message.correlation_id!r}): {reason}{beginning_of(message.body)}",
            remedy="correct the producer, or send such messages to a side output: RMQSource(…, on_error='side-output'). Until then the "
            "queue redelivers the message",
        )
