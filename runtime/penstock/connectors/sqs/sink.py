"""`SqsSink`: records as messages.

SqsSink("https://sqs.eu-central-1.amazonaws.com/123456789012/alerts", JsonLinesEncoder())
SqsSink("https://…/alerts.fifo", JsonLinesEncoder(), group=lambda alert: alert.station, deduplication=lambda alert: alert.id)
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from penstock.common.errors import InvalidJob, RecordFormatError, SinkError
from penstock.common.serialization import Encoder, SerializationSchema
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.batching import BatchingWriter
from penstock.connectors.kafka.sink.serializer import KafkaRecordSerializationSchema
from penstock.connectors.sink import Sink, SinkWriter, WriterContext
from penstock.connectors.sqs.client import Queue
from penstock.connectors.sqs.receiver import AT_ONCE

MOST_BYTES = 262_144
"""Of a message, and of all messages of a request: what every SQS takes."""
_THREADS = 8
_NO_TEXT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What SQS does not take in a body."""
_ID = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")
"""A message group's id, or a deduplication id."""
Entry = dict[str, Any]


class SqsSink(Sink):
    """At least once. Messages of a standard queue have no order; those of a group of a FIFO queue keep that of their subtask.

    Args:
        queue_url: of the queue, which must be there.
        serialization_schema: of bodies, which are text: a schema, or an encoder of lines such as `JsonLinesEncoder`.
        group: a record -> its message group; a FIFO queue needs it.
        deduplication: a record -> its deduplication id; a FIFO queue needs it, unless it deduplicates by content.
        region: that of the URL unless given.
        batch_time: how long a record waits at most for others; a checkpoint waits until SQS has all.
        patience: how long SQS may be lost or overloaded until the job fails over.
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
        if not isinstance(serialization_schema, SerializationSchema | Encoder):
            raise InvalidJob(
                f"{serialization_schema!r} is no serializer of bodies",
                remedy="give a SerializationSchema such as SimpleStringSchema(), or JsonLinesEncoder()",
            )
        self.queue = Queue(queue_url, region, as_millis(patience, "patience") / 1000)
        if self.queue.is_fifo != (group is not None) or (deduplication is not None and group is None):
            raise InvalidJob(
                f"queue {self.queue.name!r} with group={group!r} and deduplication={deduplication!r}",
                remedy="a FIFO queue needs a group for each record, and no other queue has any",
            )
        self.schema = serialization_schema
        self.group = group
        self.deduplication = deduplication
        self.batch_ms = as_millis(batch_time, "batch_time")

    def with_input_type(self, type_info: Any) -> Sink:
        if not isinstance(self.schema, Encoder):
            return self
        typed = copy.copy(self)
        typed.schema = self.schema.with_input_type(type_info)
        return typed

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return SqsWriter(self)

    def entries(self, records: list[Any]) -> list[Entry]:
        """
        Raises:
            RecordFormatError: a record does not fit, or a function gives for it what no message can have.
        """
        bodies = KafkaRecordSerializationSchema("", self.schema).values(records)
        return [self._entry(body, record) for body, record in zip(bodies, records, strict=True)]

    def _entry(self, body: Any, record: Any) -> Entry:
        text = _text(body, record)
        if len(body) > MOST_BYTES:
            raise RecordFormatError(
                f"the message for {_shown(record)} has {len(body):,} bytes",
                remedy=f"SQS takes {MOST_BYTES:,}: write what is large to a file, and send where it is",
            )
        entry: Entry = {"MessageBody": text}
        for name, function in (("MessageGroupId", self.group), ("MessageDeduplicationId", self.deduplication)):
            if function is None:
                continue
            found = function(record)
            if not isinstance(found, str) or not _ID.fullmatch(found):
                raise RecordFormatError(
                    f"{name} is {_shown(found)} for {_shown(record)}",
                    remedy="let the function give 1 to 128 letters, digits or signs of ASCII",
                )
            entry[name] = found
        return entry

    def validate(self) -> None:
        """
        Raises:
            SinkError: SQS does not answer or does not let us, or there is no such queue.
        """
        client = self.queue.aws.client(SinkError)
        self.queue.aws.asked(
            SinkError,
            "cannot be written to",
            lambda: client.get_queue_attributes(QueueUrl=self.queue.url, AttributeNames=["QueueArn"])["Attributes"],
        )


class SqsWriter(BatchingWriter):
    """Sends ten at once, from several threads unless the queue keeps an order."""

    def __init__(self, sink: SqsSink) -> None:
        super().__init__(sink.batch_ms)
        self._sink = sink
        self._threads = 1 if sink.queue.is_fifo else _THREADS
        self._client = sink.queue.aws.client(SinkError, self._threads)
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="sqs")
        self._held: list[Entry] = []
        self._bytes = 0
        self._sent: list[Future[None]] = []
        self._is_closed = False

    @property
    def holds(self) -> bool:
        return bool(self._held or self._sent)

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        for entry in self._sink.entries(values):
            size = len(entry["MessageBody"].encode())
            if len(self._held) == AT_ONCE or (self._held and self._bytes + size > MOST_BYTES):
                self._send()
            self._held.append({"Id": str(len(self._held)), **entry})
            self._bytes += size

    def _send(self) -> None:
        entries, self._held, self._bytes = self._held, [], 0
        while len(self._sent) >= 2 * self._threads:
            self._sent.pop(0).result()
        self._sent.append(self._pool.submit(self._send_now, entries))

    def _send_now(self, entries: list[Entry]) -> None:
        queue = self._sink.queue
        left = entries

        def send() -> None:
            nonlocal left
            answer = self._client.send_message_batch(QueueUrl=queue.url, Entries=left)
            failed = {told["Id"]: told for told in answer.get("Failed", ())}
            taken = {told["Id"] for told in answer.get("Successful", ())}
            left = [entry for entry in left if entry["Id"] not in taken]
            wrong = next((told for told in failed.values() if told.get("SenderFault")), None)
            if wrong is not None:
                body = next(entry["MessageBody"] for entry in left if entry["Id"] == wrong["Id"])
                raise SinkError(
                    f"queue {queue.name!r} refuses a message: {wrong.get('Code')}: {wrong.get('Message')}: {_shown(body)}",
                    remedy="correct or filter out such records; for a FIFO queue give deduplication, or let it deduplicate by content",
                )
            if left:  # the others are in
                told = [one.get("Message") for one in failed.values()]
                raise OSError(f"{len(left)} messages: {told[0] if told else 'no word of them'}")

        queue.aws.asked(SinkError, "takes no messages", send, lambda: self._is_closed)

    def flush(self) -> None:
        if self._held:
            self._send()
        sent, self._sent = self._sent, []
        for future in sent:
            future.result()

    def finish(self) -> None:
        self.flush()

    def close(self) -> None:
        self._is_closed = True
        self._pool.shutdown(cancel_futures=True)


def _text(body: Any, record: Any) -> str:
    """
    Raises:
        RecordFormatError: SQS takes none like that.
    """
    remedy = "bodies of SQS are text, without control characters: encode bytes (base64), and filter out before the sink what is to be no message"
    if not isinstance(body, bytes):
        raise RecordFormatError(f"the serializer gives {_shown(body)} for {_shown(record)}", remedy=remedy)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise RecordFormatError(
            f"the message for {_shown(record)} is no UTF-8: {_shown(body)}", remedy=remedy
        ) from None
    wrong = _NO_TEXT.search(text)
    if wrong or not text:
        told = f"has {wrong[0]!r}" if wrong else "is empty"
        raise RecordFormatError(f"the message for {_shown(record)} {told}", remedy=remedy)
    return text


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
