"""A consumer of a queue in its own thread, which answers heartbeats even if the job's functions are slow."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, NamedTuple

from penstock.common.errors import PenstockError, SourceError
from penstock.connectors.messages.inbox import QueueClient
from penstock.connectors.rabbitmq.client import (
    LOGGER,
    Outage,
    errors,
    explained,
    is_passing,
    message_of,
    package,
    parameters,
)
from penstock.connectors.rabbitmq.config import RMQConnectionConfig

_TURN_S = 1.0
_COUNT_S = 5.0
"""Interval in seconds between two queries of the queue's remaining messages."""
_CLOSE_S = 5.0
MANY_TIMES = 10
"""Number of redeliveries of one message at which the consumer logs a warning. This is half of RabbitMQ 4's limit."""


class Delivery(NamedTuple):
    """A received message with the number of its connection. The message's tag is only valid on this connection."""

    connection: int
    tag: int
    is_redelivered: bool
    came_at: float
    """Time of receipt in seconds, by the monotonic clock."""
    correlation_id: str | bytes | None
    """The message's correlation id. Bytes mean that it is not UTF-8."""
    time: int | None
    """The message's own time in ms. RabbitMQ has a resolution of seconds."""
    body: bytes

    def value(self) -> bytes:
        return self.body


class Emptied(NamedTuple):
    """A note that the queue was empty. All redeliveries up to this tag have arrived."""

    connection: int
    tag: int
    at: float
    """The time in seconds, by the monotonic clock."""


class Consumer(QueueClient[Delivery]):
    """A consumer of one queue. It runs in a separate thread.

    Args:
        is_alone: whether this must be the queue's only consumer.
        name: the connection's name, for the broker's operator.
    """

    def __init__(self, config: RMQConnectionConfig, queue: str, *, is_alone: bool, name: str) -> None:
        super().__init__(lambda delivery: len(delivery.body))
        self._config = config
        self._queue = queue
        self._is_alone = is_alone
        self._name = name
        self._requests: deque[tuple[int, int, int]] = deque()
        self._stopping = threading.Event()
        self._connection: Any = None
        self.number = 0
        """The connection's number. 0 means that no connection exists yet."""
        self.connected_at = 0.0
        self.emptied: Emptied | None = None
        self._delivered = self._acknowledged = 0
        self._is_cancelled = False
        self._has_warned = False
        self._thread = self._start(f"rabbitmq {name}", self._run)

    # --- the task's side --------------------------------------------------------------------------------------

    def acknowledge(self, connection: int, tag: int, checkpoint_id: int) -> None:
        """Acknowledge all messages up to this tag. `confirmed` reports when the broker has the acknowledgement."""
        self._requests.append((connection, tag, checkpoint_id))
        self._wake()

    def close(self) -> None:
        self._stopping.set()
        self._wake()
        self._thread.join(_CLOSE_S)

    def _wake(self) -> None:
        connection = self._connection
        if connection is not None:
            try:
                connection.add_callback_threadsafe(lambda: None)
            except errors():
                pass  # the connection is closing

    # --- the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        outage = Outage(self._config)
        while not self._stopping.is_set():
            try:
                self._serve(outage)
            except errors() as error:
                self._connection = None
                if not is_passing(error) or outage.is_too_long(error):
                    raise
                LOGGER.warning("queue %r: %s; retrying", self._queue, message_of(error))
                self._stopping.wait(self._config.network_recovery_interval / 1000)

    def _explained(self, error: Exception) -> PenstockError:
        return explained(self._config, SourceError, error)

    def _serve(self, outage: Outage) -> None:
        connection = package().BlockingConnection(parameters(self._config, SourceError, self._name))
        try:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=self._config.prefetch_count)
            channel.add_on_cancel_callback(self._on_cancel)
            self._inbox.clear()  # the broker redelivers these messages, and only the redelivered messages can be acknowledged
            self._is_cancelled = False
            self._delivered = self._acknowledged = 0
            self.number, self.connected_at = self.number + 1, time.monotonic()
            # Check for other consumers also before consuming, because a quorum queue counts each requeued delivery against a message's limit.
            self._state(channel, consumers=0)
            channel.basic_consume(self._queue, self._on_message, exclusive=self._is_alone)
            self._state(channel, consumers=1)
            outage.ended()
            self._connection = connection
            self._turn(connection, channel)
        finally:
            self._connection = None
            if connection.is_open:
                connection.close()

    def _turn(self, connection: Any, channel: Any) -> None:
        count_at = 0.0
        while True:
            emptied_at = None
            stopping = self._stopping.is_set()
            tag, checkpoint_id = self._requested()
            if tag > self._acknowledged:
                channel.basic_ack(tag, multiple=True)
                self._acknowledged = tag
            if checkpoint_id is not None or self._is_cancelled or time.monotonic() >= count_at:
                # The answer to this query proves that the queue has received all earlier acknowledgements. If the queue was deleted, the
                # query raises an error.
                emptied_at = self._check_empty(channel)
                count_at = time.monotonic() + _COUNT_S
            if checkpoint_id is not None:
                self._confirmed.append(checkpoint_id)
            if stopping:
                return
            if self._is_cancelled:
                raise package().exceptions.AMQPConnectionError("the broker has ended the consumer")
            if not self._requests:
                connection.process_data_events(time_limit=_TURN_S if emptied_at is None else 0)
                if emptied_at is not None:
                    self.emptied = Emptied(self.number, self._delivered, emptied_at)

    def _check_empty(self, channel: Any) -> float | None:
        """Query the number of remaining messages. Return the time of the query if no messages were left."""
        now = time.monotonic()
        found = self._state(channel, consumers=1)
        self._backlog = found.message_count
        if found.message_count or not found.consumer_count:  # a quorum queue without a leader reports 0 for both counts
            return None
        # The answer can arrive before messages that the queue has sent earlier. The answer to a second query arrives after them.
        self._state(channel, consumers=1)
        return now

    def _state(self, channel: Any, *, consumers: int) -> Any:
        """Return the queue's state. Raise an error if a source that must be alone finds other consumers. A quorum queue allows other
        consumers in spite of exclusive use."""
        found = channel.queue_declare(self._queue, passive=True).method
        if self._is_alone and found.consumer_count > consumers:
            raise package().exceptions.AMQPConnectionError(
                f"queue {self._queue!r} has {found.consumer_count - consumers} other consumers, but the source needs exclusive use"
            )
        return found

    def _requested(self) -> tuple[int, int | None]:
        tag, newest = 0, None
        while self._requests:
            number, last, checkpoint_id = self._requests.popleft()
            if number == self.number:
                tag, newest = max(tag, last), checkpoint_id
        return tag, newest

    def _on_cancel(self, _method: Any) -> None:
        self._is_cancelled = True

    def _watch_count(self, count: Any) -> None:
        """Warn if a quorum queue has redelivered a message many times. At its limit, the queue drops the message and notifies no consumer."""
        if not self._has_warned and isinstance(count, int) and count >= MANY_TIMES:
            self._has_warned = True
            LOGGER.warning(
                "queue %r redelivered a message %d times. A quorum queue drops it at its delivery-limit (RabbitMQ 4: 20). Help the job "
                "to "
                "complete a checkpoint, or set a policy with delivery-limit -1",
                self._queue,
                count,
            )

    def _on_message(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._watch_count((properties.headers or {}).get("x-delivery-count", 0))
        seconds = properties.timestamp
        self._delivered = method.delivery_tag
        delivery = Delivery(
            self.number,
            method.delivery_tag,
            method.redelivered,
            time.monotonic(),
            properties.correlation_id,
            None if seconds is None else int(seconds) * 1000,
            body,
        )
        self._inbox.put([delivery])
