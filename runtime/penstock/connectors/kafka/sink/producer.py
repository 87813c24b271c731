"""A producer of librdkafka's: what it takes, what it refuses, and how it ends."""

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
from penstock.connectors.kafka.offsets import made
from penstock.connectors.kafka.sink.transaction import Transaction

_POLL_S = 0.1
_INIT_S = 60.0
_STATISTICS_MS = 100
_NO_MESSAGE = (TypeError, ValueError, OverflowError)
"""What the client raises for a message of wrong types."""
_DEFAULTS = {
    "acks": "all",
    "enable.idempotence": "true",
    "partitioner": "murmur2_random",
    "linger.ms": "1",
    "compression.type": "lz4",
    "queue.buffering.max.kbytes": "65536",
    "queue.buffering.max.messages": "100000",
}
"""A key goes to the partition that Kafka's Java client would choose, so that topics of both can be joined."""


class _Told:
    """What the client tells by calls. They know nothing of the producer, whose client would then be part of a cycle: such a one ends
    in any thread, or never, for the collector does not see all that a client holds."""

    def __init__(self) -> None:
        self.failed: tuple[Any, str, int] | None = None
        """Of the first message that was not taken: the error, its topic, its bytes."""
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
    """Writes messages and sees to it that all arrive.

    Args:
        transactional_id: None: it writes without a transaction.
    """

    def __init__(self, properties: Properties, transactional_id: str | None = None) -> None:
        kafka = self._kafka = package("confluent_kafka")
        self.id = transactional_id
        self._properties = properties
        self._complaints = Complaints()
        self._told = _Told()
        settings = librdkafka({**_DEFAULTS, **properties}, self._complaints)
        settings["on_delivery"] = self._told.on_delivery
        settings["delivery.report.only.error"] = True
        if transactional_id is not None:
            settings |= {
                "transactional.id": transactional_id,
                "statistics.interval.ms": _STATISTICS_MS,
                "stats_cb": self._told.on_statistics,
            }
        self._timeout_ms = int(settings.get("transaction.timeout.ms", 60_000))
        self._producer = made(lambda: kafka.Producer(settings), properties)
        self.records = 0
        self._began_ms = 0

    def prepare(self) -> KafkaProducer:
        """Get an epoch for the id, and begin the transaction: the broker learns of that with the first message.

        Raises:
            SinkError: the cluster does not answer, or does not let us.
        """
        what = f"no transaction can be begun under {self.id!r}"
        try:
            self._producer.init_transactions(_INIT_S)
            deadline = time.monotonic() + _INIT_S
            while self._told.identity is None:
                self._producer.poll(0.01)
                self._complaints.renew(self._producer, self._properties)
                if time.monotonic() > deadline:
                    raise SinkError(
                        f"{what}: the client tells no producer id", remedy="do not set statistics.interval.ms to 0"
                    )
            self._producer.begin_transaction()
        except self._kafka.KafkaException as error:
            raise explained(SinkError, what, error, self._properties, self._complaints.last) from error
        return self

    def send_all(
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[Any] | None = None,
        timestamps: Sequence[int | None] | None = None,
    ) -> None:
        """Messages without headers, into the partitions of their keys. (`Producer.produce_batch` wants a dict for each, which
        costs more than the calls that it saves, and knows neither partitions nor times.)

        Args:
            timestamps: ms; 0 or None: now.

        Raises:
            SinkError: one was refused.
            RecordFormatError: one is none, for its key or value is of a wrong type.
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
                self._look(_POLL_S)
            except self._kafka.KafkaException as error:
                refused = values[len(values) - length_hint(rest) - 1]
                raise self._not_written(error.args[0], topic, len(refused or b"")) from error
            except _NO_MESSAGE as error:
                at = len(values) - length_hint(rest) - 1
                parts = {"value": values, "key": keys, "timestamp": timestamps}
                raise _no_message(
                    topic, error, **{n: part[at] for n, part in parts.items() if part is not None}
                ) from error
        self._look(0.0)

    def send(self, topic: str, **message: Any) -> None:
        """One message, as `Producer.produce` takes it.

        Raises:
            SinkError: it was refused.
            RecordFormatError: it is none: of wrong types, or for a partition below 0.
        """
        self._note(1)
        while True:
            try:
                if message.get("partition", 0) < 0:
                    raise ValueError("partitions are numbered from 0")
                self._producer.produce(topic, **message)
                return
            except BufferError:
                self._look(_POLL_S)
            except self._kafka.KafkaException as error:
                raise self._not_written(error.args[0], topic, len(message.get("value") or b"")) from error
            except _NO_MESSAGE as error:
                raise _no_message(topic, error, **message) from error

    def _note(self, count: int) -> None:
        if not self.records:
            self._began_ms = int(time.time() * 1000)
        self.records += count

    def look(self) -> None:
        """
        Raises:
            SinkError: a message was not taken.
        """
        self._look(0.0)

    def _look(self, seconds: float) -> None:
        self._serve(lambda: self._producer.poll(seconds))
        self._complaints.renew(self._producer, self._properties)
        if self._told.failed is not None:
            raise self._not_written(*self._told.failed)
        if self._complaints.is_shut_out:
            what = "messages cannot be written"
            raise explained(SinkError, what, PermissionError(self._complaints.refusal), self._properties)

    def flush(self) -> None:
        """Wait until all messages have been taken, for as long as the client tries (`message.timeout.ms`).

        Raises:
            SinkError: one was not.
        """
        while self._serve(lambda: self._producer.flush(1.0)):
            self._look(0.0)
        self._look(0.0)

    def _serve(self, call: Callable[[], int]) -> int:
        """A call that may call back. Of a fatal error the client tells by an exception, under which callbacks still run."""
        try:
            return call()
        except (self._kafka.KafkaException, SystemError) as error:
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, self._kafka.KafkaException):
                cause = cause.__cause__
            if cause is None:  # it says nothing more of an error that it has told before
                cause = self._kafka.KafkaException(self._kafka.KafkaError(self._kafka.KafkaError._FATAL, str(error)))
            what = "the producer cannot go on" if self.id is None else f"transaction {self.id!r} cannot go on"
            raise self._explained(what, cause) from error

    def transaction(self) -> Transaction:
        """What was written, after `flush`."""
        assert self.id is not None
        assert self._told.identity is not None
        return Transaction(self.id, *self._told.identity, self.records, self._began_ms, self._timeout_ms)

    def _not_written(self, error: Any, topic: str, size: int) -> Exception:
        what = f"a message of {size} bytes cannot be written to topic {topic!r}"
        return self._explained(what, self._kafka.KafkaException(error))

    def _explained(self, what: str, error: BaseException) -> Exception:
        reason = explained(SinkError, what, error, self._properties, self._complaints.last)
        open_ms = int(time.time() * 1000) - self._began_ms
        if self.id is None or not self.records or open_ms < self._timeout_ms:
            return reason
        return SinkError(
            f"{reason.message}; transaction {self.id!r} is open for {open_ms} ms, and brokers abort what is open for longer than "
            f"transaction.timeout.ms ({self._timeout_ms} ms)",
            remedy="what it held is written again by the next attempt. If this comes again take checkpoints more often, or raise "
            "transaction.timeout.ms above the longest time from a record to the commit of its checkpoint",
        )

    def close(self) -> None:
        """Let go of it; what it has written and flushed stays, its transaction is left as it is."""
        del self._producer


def _no_message(topic: str, error: Exception, **message: Any) -> RecordFormatError:
    parts = ", ".join(f"{name} {repr(part)[:60]} ({type(part).__name__})" for name, part in message.items())
    return RecordFormatError(
        f"no message for topic {topic!r} can be made of {parts}: {error}",
        remedy="keys and values are bytes, text or None; headers are pairs of a name and one of these; times and partitions are "
        "whole numbers",
    )
