"""`SqsSource`: the messages of a queue.

SqsSource("https://sqs.eu-central-1.amazonaws.com/123456789012/orders", JsonLinesFormat(Order))
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.common.errors import InvalidJob, RecordFormatError, SourceError
from penstock.common.serialization import DeserializationSchema
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.formats.record_format import MALFORMED_RECORDS, StreamFormat
from penstock.connectors.kafka.source.deserializer import MessageDecoder, shown
from penstock.connectors.source import (
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.connectors.sqs.client import Queue
from penstock.connectors.sqs.receiver import Message, Receiver
from penstock.connectors.sqs.seen_ids import SeenIds
from penstock.records.batch import Batch, ColumnBatch, RowBatch

_THREADS = 8
_LONGEST_HIDDEN_S = 43_200
_RETENTION_S = 14 * 86_400
"""The longest there is; of a queue that does not say its own."""


class SqsRejectedMessage(NamedTuple):
    """A message that could not be read, as it comes out of the side output."""

    queue: str
    message_id: str
    body: bytes
    reason: str


class SqsSource(Source):
    """Records have the time when their message was sent.

    Args:
        queue_url: of the queue, which must be there.
        deserialization_schema: of bodies: a schema, or a format of lines, such as `JsonLinesFormat`, which decodes many at once into columns.
        exactly_once: by the ids that SQS gives messages; one subtask reads. Else at least once, and all subtasks read.
        region: that of the URL unless given.
        visibility_timeout: for so long SQS gives a message that a killed job had to nobody else. While the job lives it is renewed.
        most_under_way: messages of a subtask that are received and not deleted; a checkpoint deletes them, so it bounds what is read between two.
        on_error: what becomes of a message that cannot be read: "fail", or "side-output" to `error_tag` as `SqsRejectedMessage`.
        keep_ids: how long ids stay in the state after their messages were deleted.
        patience: how long SQS may be lost or overloaded until the job fails over.
    """

    bounded = False

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
        if on_error not in ("fail", "side-output"):
            raise InvalidJob(f"on_error={on_error!r}", remedy="write 'fail' or 'side-output'")
        hidden_ms = as_millis(visibility_timeout, "visibility_timeout")
        if not 1_000 <= hidden_ms <= _LONGEST_HIDDEN_S * 1_000:
            raise InvalidJob(f"visibility_timeout={visibility_timeout!r}", remedy="give one second to twelve hours")
        if most_under_way < 100:
            raise InvalidJob(f"most_under_way={most_under_way}", remedy="100 or more; SQS has at most 120,000")
        self.queue = Queue(queue_url, region, as_millis(patience, "patience") / 1000)
        self.schema = deserialization_schema
        self.is_exact = exactly_once
        self.hidden_s = -(-hidden_ms // 1000)
        self.most_under_way = most_under_way
        self.keep_ids_s = as_millis(keep_ids, "keep_ids") / 1000
        self._error_tag = getattr(error_tag, "tag_id", error_tag) if on_error == "side-output" else None
        self.decoder()

    def decoder(self) -> BodyDecoder:
        return BodyDecoder(self.queue.name, self.schema, rejects=self._error_tag is not None)

    @property
    def sole_use(self) -> str | None:
        return f"queue {self.queue.url!r}" if self.is_exact else None

    def create_enumerator(self) -> SplitEnumerator:
        return QueueEnumerator(self)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return SqsSourceReader(self, context)

    def produced_type(self) -> Any:
        if isinstance(self.schema, StreamFormat):
            return self.schema.produced_type()
        return self.schema.get_produced_type()

    def side_output_tags(self) -> tuple[str, ...]:
        return () if self._error_tag is None else (self._error_tag,)

    def check_checkpoints(self, interval_ms: int) -> None:
        if not interval_ms:
            raise InvalidJob(
                "an SQS source without checkpoints: no message would ever be deleted",
                remedy="env.enable_checkpointing(1000)",
            )

    def validate(self) -> None:
        """
        Raises:
            SourceError: SQS does not answer or does not let us, or there is no such queue.
        """
        self.retention_s()

    def retention_s(self) -> int:
        """How long the queue keeps messages."""
        client = self.queue.aws.client(SourceError)
        name = "MessageRetentionPeriod"
        found = self.queue.aws.asked(
            SourceError,
            "cannot be read",
            lambda: client.get_queue_attributes(QueueUrl=self.queue.url, AttributeNames=["All"])["Attributes"],
        )
        return int(found.get(name, _RETENTION_S))


class QueueEnumerator(SplitEnumerator):
    """A split is a receiver: one, or one for each subtask of the first start."""

    forgets_finished = True

    def __init__(self, source: SqsSource) -> None:
        self._source = source
        self._is_found = False

    def discover(self) -> list[Split]:
        if self._is_found:
            return []
        self._is_found = True
        return [Split(f"receiver-{number}") for number in range(1 if self._source.is_exact else self.parallelism)]

    def snapshot(self) -> Any:
        return self._is_found

    def restore(self, state: Any) -> None:
        self._is_found = bool(state)


class SqsSourceReader(SourceReader):
    """Of one subtask."""

    def __init__(self, source: SqsSource, context: ReaderContext) -> None:
        self._source = source
        self._context = context
        self._readers: list[QueueReader] = []

    def open_split(self, split: Split, position: Any) -> SplitReader:
        name = f"{self._context.uid} {self._context.subtask} {split.id}"
        reader = QueueReader(self._source, name, position or "")
        self._readers.append(reader)
        return reader

    def snapshot(self, checkpoint_id: int) -> None:
        for reader in self._readers:
            reader.snapshot(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        for reader in self._readers:
            reader.notify_checkpoint_complete(checkpoint_id)


class QueueReader(SplitReader):
    """One receiver. The position is the ids of messages that may come again."""

    def __init__(self, source: SqsSource, name: str, position: str) -> None:
        self._source = source
        self._decoder = source.decoder()
        self._seen: SeenIds | None = None
        if source.is_exact:
            self._seen = SeenIds(position, source.keep_ids_s, source.retention_s(), time.time())
        self._receiver = Receiver(
            source.queue,
            name,
            hidden_s=source.hidden_s,
            threads=1 if source.queue.is_fifo else _THREADS,
            most_under_way=source.most_under_way,
        )
        self._handles: list[str] = []
        """Of messages that were read since the last barrier."""
        self._taken: dict[int, list[str]] = {}
        """The same by checkpoint, until it is complete."""
        self._rejected: list[Any] = []

    def read(self, bounds: ReadBounds) -> Batch | None:
        self._note_deleted()
        new: list[Message] = []
        while not new:  # what only came again is no turn of the task's, which may be long to come
            taken = self._receiver.take(bounds.max_records, bounds.max_bytes)
            if not taken:
                return None
            self._handles += [message.handle for message in taken]
            seen = self._seen
            new = taken if seen is None else [message for message in taken if seen.add(message.id)]
        batch, rejected = self._decoder.decode(new)
        self._rejected += rejected
        return batch

    def _note_deleted(self) -> None:
        if self._seen is None:
            return
        now = time.time()
        deleted = self._receiver.deleted()
        if deleted is not None:
            self._seen.deleted(deleted, now)
        self._seen.forget(now)

    def has_given_all(self) -> bool:
        return not self._receiver.waiting

    def take_rejected(self) -> list[Any]:
        rejected, self._rejected = self._rejected, []
        return rejected

    def snapshot(self, checkpoint_id: int) -> None:
        if self._seen is not None:
            self._seen.snapshot(checkpoint_id)
        if self._handles:
            self._taken[checkpoint_id], self._handles = self._handles, []

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        done = sorted(taken for taken in self._taken if taken <= checkpoint_id)
        handles = [handle for taken in done for handle in self._taken.pop(taken)]
        if handles:
            self._receiver.delete(handles, checkpoint_id)

    @property
    def position(self) -> str:
        return "" if self._seen is None else self._seen.position

    @property
    def finished(self) -> bool:
        return False

    def lag(self) -> int | None:
        return self._receiver.lag

    def close(self) -> None:
        self._receiver.close()


class BodyDecoder(MessageDecoder):
    """Of the messages of a queue."""

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

    def _rejected(self, message: Any, reason: str) -> SqsRejectedMessage:
        return SqsRejectedMessage(self._queue, message.id, message.body, reason)

    def _malformed(self, message: Any, reason: str) -> RecordFormatError:
        return RecordFormatError(
            f"malformed message {message.id} of queue {self._queue!r}: {reason}{shown(message.body)}",
            remedy="correct the producer, or let such messages go to a side output: SqsSource(…, on_error='side-output'). Until then the "
            "queue gives it again, or moves it to its dead-letter queue",
        )
