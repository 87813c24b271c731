"""A librdkafka producer: how it sends messages, reports errors and ends."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import length_hint
from typing import Any

from penstock.common.errors import RecordFormatError, SinkError
from penstock.connectors.kafka.client import Complaints, Properties, explained, librdkafka, package
from penstock.connectors.kafka.offsets import create_client
from penstock.connectors.kafka.sink.transaction import Transaction

_POLL_S = 0.1
_INIT_S = 60.0
_STATISTICS_MS = 100
_NO_MESSAGE = (TypeError, ValueError, OverflowError)
"""Exceptions that the client raises for a message of wrong types."""
_DEFAULTS = {
    "acks": "all",
    "enable.idempotence": "true",
    "partitioner": "murmur2_random",
    "linger.ms": "1",
    "compression.type": "lz4",
    "queue.buffering.max.kbytes": "65536",
    "queue.buffering.max.messages": "100000",
}
"""Default settings. The partitioner is that of Kafka's Java client, so that topics of both clients can be joined."""


class _Reports:
    """The results that the client reports through callbacks.

    The callbacks do not refer to the producer. Otherwise the client would be part of a reference cycle, and only the
    garbage collector could end the client. The garbage collector runs in any thread. The collector may also never end
    the client, because it does not see all references of a client.
    """

    def __init__(self) -> None:
        self.failed: tuple[Any, str, int] | None = None
        """The error, topic and bytes of the first message that was not delivered."""
        self.identity: tuple[int, int] | None = None
        """Producer id and epoch."""

    def on_delivery(self, error: Any, message: Any) -> None:
        if error is not None and self.failed is None:
            self.failed = (error, message.topic(), len(message.value() or b""))

    def on_statistics(self, text: str) -> None:
        if self.identity is None:
            about = json.loads(text).get("eos", {})
            if about.get("producer_id", -1) >= 0:
                self.identity = about["producer_id"], about["producer_epoch"]


class KafkaProducer:
    """A producer that writes messages and checks that all are delivered.

    Args:
        transactional_id: the id of the producer's transactions. None means that the producer writes without transactions.
    """

    def __init__(self, properties: Properties, transactional_id: str | None = None) -> None:
        kafka = self._kafka = package("confluent_kafka")
        self.id = transactional_id
        self._properties = properties
        self._complaints = Complaints()
        self._reports = _Reports()
        settings = librdkafka({**_DEFAULTS, **properties}, self._complaints)
        settings["on_delivery"] = self._reports.on_delivery
        settings["delivery.report.only.error"] = True
        if transactional_id is not None:
            settings |= {
                "transactional.id": transactional_id,
                "statistics.interval.ms": _STATISTICS_MS,
                "stats_cb": self._reports.on_statistics,
            }
        self._timeout_ms = int(settings.get("transaction.timeout.ms", 60_000))
        self._producer = create_client(lambda: kafka.Producer(settings), properties)
        self.records = 0
        self._began_ms, self._began = 0, 0.0

    def prepare(self) -> KafkaProducer:
        """Get an epoch for the id, and begin the transaction. The broker learns of the transaction with the first message.

        Raises:
            SinkError: the cluster does not answer, or denies access.
        """
        problem = f"transaction {self.id!r} cannot start"
        try:
            self._producer.init_transactions(_INIT_S)
            deadline = time.monotonic() + _INIT_S
            while self._reports.identity is None:
                self._producer.poll(0.01)
                self._complaints.renew(self._producer, self._properties)
                if time.monotonic() > deadline:
                    raise SinkError(
                        f"{problem}: the client has not reported its producer id",
                        remedy="do not set statistics.interval.ms to 0",
                    )
            self._producer.begin_transaction()
        except self._kafka.KafkaException as error:
            raise explained(SinkError, problem, error, self._properties, self._complaints.last) from error
        return self

    def send_all(
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[Any] | None = None,
        timestamps: Sequence[int | None] | None = None,
    ) -> None:
        """Send messages without headers, into the partitions of their keys.

        `Producer.produce_batch` is not used. It needs a dict for each message, which costs more than the calls that it saves. It
        also does not support partitions and timestamps.

        Args:
            timestamps: in ms; 0 or None means the present time.

        Raises:
            SinkError: a message was refused.
            RecordFormatError: a key or value is of a wrong type.
        """
        self._note(len(values))
        done = 0
        while True:
            rest = iter(values[done:] if done else values)
            more: tuple[Iterable[Any], ...] = () if keys is None else (keys[done:],)
            if timestamps is not None:
                more = (*(more or (repeat(None),)), repeat(-1), repeat(None), repeat(None), timestamps[done:])
            try:
                deque(map(self._producer.produce, repeat(topic), rest, *more), maxlen=0)
                break
            except BufferError:
                done = len(values) - length_hint(rest) - 1
                self._poll(_POLL_S)
            except self._kafka.KafkaException as error:
                refused = values[len(values) - length_hint(rest) - 1]
                raise self._not_written(error.args[0], topic, len(refused or b"")) from error
            except _NO_MESSAGE as error:
                at = len(values) - length_hint(rest) - 1
                parts = {"value": values, "key": keys, "timestamp": timestamps}
                raise _no_message(
                    topic, error, **{n: part[at] for n, part in parts.items() if part is not None}
                ) from error
        self._poll(0.0)

    def send(self, topic: str, **message: Any) -> None:
        """Send one message, with the arguments of `Producer.produce`.

        Raises:
            SinkError: the message was refused.
            RecordFormatError: a part of the message is of a wrong type, or the partition is below 0.
        """
        self._note(1)
        while True:
            try:
                if message.get("partition", 0) < 0:
                    raise ValueError("partitions are numbered from 0")
                self._producer.produce(topic, **message)
                return
            except BufferError:
                self._poll(_POLL_S)
            except self._kafka.KafkaException as error:
                raise self._not_written(error.args[0], topic, len(message.get("value") or b"")) from error
            except _NO_MESSAGE as error:
                raise _no_message(topic, error, **message) from error

    def _note(self, count: int) -> None:
        if not self.records:
            self._began_ms, self._began = int(time.time() * 1000), time.monotonic()
        self.records += count

    def check(self) -> None:
        """Check that no delivery has failed.

        Raises:
            SinkError: a message was not delivered.
        """
        self._poll(0.0)

    def _poll(self, seconds: float) -> None:
        self._serve(lambda: self._producer.poll(seconds))
        self._complaints.renew(self._producer, self._properties)
        if self._reports.failed is not None:
            raise self._not_written(*self._reports.failed)
        if self._complaints.is_shut_out:
            problem = "messages cannot be written"
            raise explained(SinkError, problem, PermissionError(self._complaints.refusal), self._properties)

    def flush(self) -> None:
        """Wait until all messages are delivered, for as long as the client retries (`message.timeout.ms`).

        Raises:
            SinkError: a message was not delivered.
        """
        while self._serve(lambda: self._producer.flush(1.0)):
            self._poll(0.0)
        self._poll(0.0)

    def _serve(self, call: Callable[[], int]) -> int:
        """Run a client call that may call back. The client reports a fatal error by an exception after its callbacks."""
        try:
            return call()
        except (self._kafka.KafkaException, SystemError) as error:
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, self._kafka.KafkaException):
                cause = cause.__cause__
            if cause is None:  # the client gives the details of an error only once
                cause = self._kafka.KafkaException(self._kafka.KafkaError(self._kafka.KafkaError._FATAL, str(error)))
            problem = "the producer cannot continue" if self.id is None else f"transaction {self.id!r} cannot continue"
            raise self._explained(problem, cause) from error

    def transaction(self) -> Transaction:
        """Return the transaction that was written. Call `flush` first."""
        assert self.id is not None
        assert self._reports.identity is not None
        return Transaction(self.id, *self._reports.identity, self.records, self._began_ms, self._timeout_ms)

    def _not_written(self, error: Any, topic: str, size: int) -> Exception:
        problem = f"a message of {size} bytes cannot be written to topic {topic!r}"
        return self._explained(problem, self._kafka.KafkaException(error))

    def _explained(self, problem: str, error: BaseException) -> Exception:
        reason = explained(SinkError, problem, error, self._properties, self._complaints.last)
        open_ms = int((time.monotonic() - self._began) * 1000)
        if self.id is None or not self.records or open_ms < self._timeout_ms:
            return reason
        return SinkError(
            f"{reason.message}; transaction {self.id!r} has been open for {open_ms} ms, and brokers abort transactions that are open for longer than "
            f"transaction.timeout.ms ({self._timeout_ms} ms)",
            remedy="the next attempt writes its records again. If this repeats, checkpoint more often, or raise "
            "transaction.timeout.ms above the longest time from a record to the commit of its checkpoint",
        )

    def close(self) -> None:
        """Release the client. This does not change flushed messages or the transaction."""
        del self._producer


def _no_message(topic: str, error: Exception, **message: Any) -> RecordFormatError:
    parts = ", ".join(f"{name} {repr(part)[:60]} ({type(part).__name__})" for name, part in message.items())
    return RecordFormatError(
        f"{parts} cannot become a message for topic {topic!r}: {error}",
        remedy="use bytes, text or None for keys and values, and whole numbers for times and partitions. A header is a pair of a name and "
        "bytes, text or None",
    )
