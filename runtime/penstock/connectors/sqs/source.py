"""`SqsSource`: read the messages of a queue.

SqsSource("https://sqs.eu-central-1.amazonaws.com/123456789012/orders", JsonLinesFormat(Order))
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from penstock.common.errors import InvalidJob, RecordFormatError, SourceError
from penstock.common.serialization import DeserializationSchema
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.core.source import ReadBounds
from penstock.connectors.formats.record_format import MALFORMED_RECORDS, StreamFormat
from penstock.connectors.messages.decoder import MessageDecoder, beginning_of
from penstock.connectors.messages.queue_source import QueueSource, QueueSplitReader
from penstock.connectors.messages.source import error_tag_of
from penstock.connectors.sqs.client import Queue
from penstock.connectors.sqs.receiver import Message, Receiver
from penstock.connectors.sqs.seen_ids import SeenIds

_THREADS = 8
_LONGEST_HIDDEN_S = 43_200
_RETENTION_S = 14 * 86_400
"""The maximum retention in seconds, for a queue that does not report its retention."""


class SqsRejectedMessage(NamedTuple):
    """A message that could not be decoded, as the side output receives it."""

    queue: str
    message_id: str
    body: bytes
    reason: str


class SqsSource(QueueSource):
    """A source of a queue. A record's timestamp is its message's sending time.

    Args:
        queue_url: the URL of an existing queue.
        deserialization_schema: the decoder of bodies: a schema, or a format of lines such as `JsonLinesFormat`, which decodes batches
            into columns.
        exactly_once: if True, the source deduplicates by the ids that SQS gives messages, and one subtask reads. If False, the source
            reads at least once, and all subtasks read.
        region: the region. The default is the region of the URL.
        visibility_timeout: how long SQS hides a message after its job was killed. A running job renews the timeout.
        most_under_way: the maximum number of messages of a subtask that are received and not deleted. A checkpoint
            deletes messages, so this number bounds the messages between two checkpoints.
        on_error: how to treat a message that cannot be decoded: "fail", or "side-output" to `error_tag` as `SqsRejectedMessage`.
        keep_ids: how long ids are kept in the state after their messages were deleted.
        patience: how long the source retries if SQS is unavailable or overloaded. After this time, the job fails over.
    """

    split_prefix = "receiver-"
    never_acknowledges = "an SQS source without checkpoints would never delete messages"

    def __init__(
        self,
        queue_url: str,
        deserialization_schema: DeserializationSchema | StreamFormat,
        *,
        exactly_once: bool = False,
        region: str = "",
        visibility_timeout: TimeLike = 60_000,
        most_under_way: int = 10_000,
        on_error: str = "fail",
        error_tag: Any = MALFORMED_RECORDS,
        keep_ids: TimeLike = 300_000,
        patience: TimeLike = 30_000,
    ) -> None:
        super().__init__(deserialization_schema, error_tag_of(on_error, error_tag), is_exact=exactly_once)
        hidden_ms = as_millis(visibility_timeout, "visibility_timeout")
        if not 1_000 <= hidden_ms <= _LONGEST_HIDDEN_S * 1_000:
            raise InvalidJob(f"visibility_timeout={visibility_timeout!r}", remedy="set one second to twelve hours")
        if most_under_way < 100:
            raise InvalidJob(f"most_under_way={most_under_way}", remedy="set 100 or more; the limit of SQS is 120,000")
        self.queue = Queue(queue_url, region, as_millis(patience, "patience") / 1000)
        self.hidden_s = -(-hidden_ms // 1000)
        self.most_under_way = most_under_way
        self.keep_ids_s = as_millis(keep_ids, "keep_ids") / 1000
        self.decoder()

    def decoder(self) -> BodyDecoder:
        return BodyDecoder(self.queue.name, self.schema, rejects=self.rejects)

    @property
    def sole_use(self) -> str | None:
        return f"queue {self.queue.url!r}" if self.is_exact else None

    def open_queue(self, name: str, position: str) -> QueueReader:
        return QueueReader(self, name, position)

    def validate(self) -> None:
        """Check before the job starts that the queue exists and is accessible.

        Raises:
            SourceError: SQS does not answer or refuses access, or the queue does not exist.
        """
        self.retention_s()

    def retention_s(self) -> int:
        """Return how long the queue keeps messages, in seconds."""
        client = self.queue.aws.client(SourceError)
        name = "MessageRetentionPeriod"
        found = self.queue.aws.retry(
            SourceError,
            "cannot be read",
            lambda: client.get_queue_attributes(QueueUrl=self.queue.url, AttributeNames=["All"])["Attributes"],
        )
        return int(found.get(name, _RETENTION_S))


class QueueReader(QueueSplitReader[SeenIds]):
    """A reader with one receiver."""

    def __init__(self, source: SqsSource, name: str, position: str) -> None:
        retention_s = source.retention_s() if source.is_exact else 0
        seen = SeenIds(position if source.is_exact else "", source.keep_ids_s, retention_s, time.time())
        self._receiver = Receiver(
            source.queue,
            name,
            hidden_s=source.hidden_s,
            threads=1 if source.queue.is_fifo else _THREADS,
            most_under_way=source.most_under_way,
        )
        super().__init__(source, source.decoder(), self._receiver, seen)
        self._handles: list[str] = []
        """Receipt handles of messages that were read since the last barrier."""

    def _take(self, bounds: ReadBounds) -> list[Message]:
        now = time.time()
        confirmed = self._receiver.confirmed()
        if confirmed is not None:
            self._seen.acknowledged(confirmed, now)
        self._seen.forget(now)
        taken = self._receiver.take(bounds.max_records, bounds.max_bytes)
        self._handles += [message.handle for message in taken]
        return taken

    def _is_new(self, message: Message) -> bool:
        return self._seen.add(message.id)

    def _read_so_far(self) -> list[str]:
        handles, self._handles = self._handles, []
        return handles

    def _acknowledge(self, pending: list[list[str]], checkpoint_id: int) -> None:
        handles = [handle for some in pending for handle in some]
        if handles:
            self._receiver.delete(handles, checkpoint_id)


class BodyDecoder(MessageDecoder):
    """The decoder of a queue's messages."""

    def __init__(self, queue: str, schema: Any, *, rejects: bool) -> None:
        super().__init__(schema, rejects=rejects)
        self._queue = queue

    def _rejected(self, message: Any, reason: str) -> SqsRejectedMessage:
        return SqsRejectedMessage(self._queue, message.id, message.body, reason)

    def _malformed(self, message: Any, reason: str) -> RecordFormatError:
        return RecordFormatError(
            f"malformed message {message.id} of queue {self._queue!r}: {reason}{beginning_of(message.body)}",
            remedy="correct the producer, or send such messages to a side output: SqsSource(…, on_error='side-output'). Until then the "
            "queue redelivers the message, or moves it to its dead-letter queue",
        )
