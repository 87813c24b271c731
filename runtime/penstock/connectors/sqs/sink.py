"""`SqsSink`: send records as messages.

SqsSink("https://sqs.eu-central-1.amazonaws.com/123456789012/alerts", JsonLinesEncoder())
SqsSink("https://…/alerts.fifo", JsonLinesEncoder(), group=lambda alert: alert.station, deduplication=lambda alert: alert.id)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from penstock.common.errors import InvalidJob, RecordFormatError, SinkError
from penstock.common.serialization import Encoder, SerializationSchema
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.core.sink import SinkWriter, WriterContext
from penstock.connectors.messages.aws_writer import AwsWriter, Entry
from penstock.connectors.messages.sink import MessageSink, short_repr
from penstock.connectors.sqs.client import Queue
from penstock.connectors.sqs.receiver import AT_ONCE

MOST_BYTES = 262_144
"""Maximum bytes of a message, and of all messages of a request. Every service with the protocol of SQS accepts this size."""
_THREADS = 8
_NO_TEXT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that SQS does not accept in a body."""
_ID = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")
"""A valid id of a message group, or a valid deduplication id."""


class SqsSink(MessageSink):
    """A sink with at-least-once delivery. A standard queue has no order. In a FIFO queue, the messages of a group keep the order in which
    a subtask sends them.

    Args:
        queue_url: the URL of an existing queue.
        serialization_schema: the encoder of bodies, which are text: a schema, or an encoder of lines such as `JsonLinesEncoder`.
        group: a function from a record to its message group. A FIFO queue requires this function.
        deduplication: a function from a record to its deduplication id. A FIFO queue requires this function, unless the queue
            deduplicates by content.
        region: the region. The default is the region of the URL.
        batch_time: the maximum time that a record waits for more records. A checkpoint waits until SQS has all messages.
        patience: how long the sink retries if SQS is unavailable or overloaded. After this time, the job fails over.
    """

    def __init__(
        self,
        queue_url: str,
        serialization_schema: SerializationSchema | Encoder,
        *,
        group: Callable[[Any], str] | None = None,
        deduplication: Callable[[Any], str] | None = None,
        region: str = "",
        batch_time: TimeLike = 1_000,
        patience: TimeLike = 30_000,
    ) -> None:
        super().__init__(serialization_schema)
        self.queue = Queue(queue_url, region, as_millis(patience, "patience") / 1000)
        if self.queue.is_fifo != (group is not None) or (deduplication is not None and group is None):
            raise InvalidJob(
                f"queue {self.queue.name!r} with group={group!r} and deduplication={deduplication!r}",
                remedy="a FIFO queue needs a group for each record, and other queues have no groups",
            )
        self.group = group
        self.deduplication = deduplication
        self.batch_ms = as_millis(batch_time, "batch_time")

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return SqsWriter(self)

    def entries(self, records: list[Any]) -> list[Entry]:
        """Return the request entries of the records.

        Raises:
            RecordFormatError: a record does not fit the schema, or a function returns a value that no message can have.
        """
        return [self._entry(body, record) for body, record in zip(self.bodies(records), records, strict=True)]

    def _entry(self, body: bytes, record: Any) -> Entry:
        text = _text(body, record)
        if len(body) > MOST_BYTES:
            raise RecordFormatError(
                f"the message for {short_repr(record)} has {len(body):,} bytes",
                remedy=f"the limit of SQS is {MOST_BYTES:,}: write large data to a file, and send its location",
            )
        entry: Entry = {"MessageBody": text}
        for name, function in (("MessageGroupId", self.group), ("MessageDeduplicationId", self.deduplication)):
            if function is None:
                continue
            found = function(record)
            if not isinstance(found, str) or not _ID.fullmatch(found):
                raise RecordFormatError(
                    f"{name} is {short_repr(found)} for {short_repr(record)}",
                    remedy="make the function return 1 to 128 ASCII letters, digits or punctuation characters",
                )
            entry[name] = found
        return entry

    def validate(self) -> None:
        """Check before the job starts that the queue exists and is accessible.

        Raises:
            SinkError: SQS does not answer or refuses access, or the queue does not exist.
        """
        client = self.queue.aws.client(SinkError)
        self.queue.aws.retry(
            SinkError,
            "cannot be written to",
            lambda: client.get_queue_attributes(QueueUrl=self.queue.url, AttributeNames=["QueueArn"])["Attributes"],
        )


class SqsWriter(AwsWriter):
    """A writer that sends ten messages at once. It uses several threads, or one thread for a FIFO queue."""

    def __init__(self, sink: SqsSink) -> None:
        threads = 1 if sink.queue.is_fifo else _THREADS
        super().__init__(
            sink.queue.aws,
            sink.batch_ms,
            most=AT_ONCE,
            most_bytes=MOST_BYTES,
            threads=threads,
            most_requests=2 * threads,
        )
        self._sink = sink

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        for entry in self._sink.entries(values):
            self._add(entry, len(entry["MessageBody"].encode()))

    def _send_now(self, entries: list[Entry]) -> None:
        super()._send_now([{"Id": str(number), **entry} for number, entry in enumerate(entries)])

    def _request(self, entries: list[Entry]) -> tuple[list[Entry], str]:
        queue = self._sink.queue
        answer = self._client.send_message_batch(QueueUrl=queue.url, Entries=entries)
        failed = answer.get("Failed", ())
        for failure in failed:
            if failure.get("SenderFault"):
                body = next(entry["MessageBody"] for entry in entries if entry["Id"] == failure["Id"])
                raise SinkError(
                    f"queue {queue.name!r} rejects a message: {failure.get('Code')}: {failure.get('Message')}: {short_repr(body)}",
                    remedy="correct or filter out such records; for a FIFO queue give deduplication, or let it deduplicate by content",
                )
        accepted = {success["Id"] for success in answer.get("Successful", ())}
        rejected = [entry for entry in entries if entry["Id"] not in accepted]
        return rejected, str(failed[0].get("Message")) if failed else "without a reason"


def _text(body: bytes, record: Any) -> str:
    """Return the body as text.

    Raises:
        RecordFormatError: SQS does not accept the body.
    """
    remedy = "SQS bodies are text without control characters: encode bytes (base64), and filter out records without a message"
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise RecordFormatError(
            f"the message for {short_repr(record)} is not UTF-8: {short_repr(body)}", remedy=remedy
        ) from None
    wrong = _NO_TEXT.search(text)
    if wrong or not text:
        problem = f"has {wrong[0]!r}" if wrong else "is empty"
        raise RecordFormatError(f"the message for {short_repr(record)} {problem}", remedy=remedy)
    return text
