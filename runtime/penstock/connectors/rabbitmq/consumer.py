"""A consumer of a queue, in a thread of its own, which answers heartbeats however slow the job's functions are."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, NamedTuple

from penstock.common.errors import PenstockError, SourceError
from penstock.connectors.rabbitmq.client import LOGGER, Outage, errors, explained, is_passing, package, parameters, told
from penstock.connectors.rabbitmq.config import RMQConnectionConfig

_TURN_S = 1.0
_ASKED_S = 5.0
"""How often the broker is asked how much is left."""
_CLOSE_S = 5.0
MANY_TIMES = 10
"""That a message was given back; half of what RabbitMQ 4 lets it be."""


class Delivery(NamedTuple):
    """A message as it came, with the number of the connection, on which alone its tag means something."""

    connection: int
    tag: int
    is_redelivered: bool
    came_at: float
    """By the monotonic clock, s."""
    correlation_id: str | bytes | None
    """Bytes: it is no UTF-8."""
    time: int | None
    """The message's own, ms; RabbitMQ knows seconds."""
    body: bytes

    def value(self) -> bytes:
        return self.body


class Emptied(NamedTuple):
    """The queue was empty: what it had to give again was delivered up to this tag."""

    connection: int
    tag: int
    at: float
    """By the monotonic clock, s."""


class Consumer:
    """
    Args:
        is_alone: no other consumer may read the queue.
        name: of the connection, for the broker's operator.
    """

    def __init__(self, config: RMQConnectionConfig, queue: str, *, is_alone: bool, name: str) -> None:
        self._config = config
        self._queue = queue
        self._is_alone = is_alone
        self._name = name
        self._inbox: deque[Delivery] = deque()
        self._requests: deque[tuple[int, int, int]] = deque()
        self._confirmed: deque[int] = deque()
        self._error: PenstockError | None = None
        self._stopping = threading.Event()
        self._connection: Any = None
        self.number = 0
        """Of the connection; 0: none was made yet."""
        self.connected_at = 0.0
        self.emptied: Emptied | None = None
        self._delivered = self._acknowledged = 0
        self._left: int | None = None
        self._is_cancelled = False
        self._has_warned = False
        self._thread = threading.Thread(target=self._run, name=f"rabbitmq {name}", daemon=True)
        self._thread.start()

    # --- the task's side --------------------------------------------------------------------------------------

    def take(self, most: int, most_bytes: int) -> list[Delivery]:
        """What has come, in order; does not wait. Either all have times or none: so it is with the records of a batch.

        Raises:
            SourceError: the queue cannot be read any more.
        """
        taken: list[Delivery] = []
        size = 0
        while len(taken) < most and size < most_bytes:
            try:
                if taken and (self._inbox[0].time is None) != (taken[0].time is None):
                    break
                delivery = self._inbox.popleft()
            except IndexError:
                break
            taken.append(delivery)
            size += len(delivery.body)
        if not taken and self._error is not None:
            raise self._error
        return taken

    @property
    def waiting(self) -> int:
        """How many have come and were not taken."""
        return len(self._inbox)

    def acknowledge(self, connection: int, tag: int, checkpoint_id: int) -> None:
        """All up to this message; `confirmed` says when the broker has it."""
        self._requests.append((connection, tag, checkpoint_id))
        self._wake()

    def confirmed(self) -> int | None:
        """The newest checkpoint whose acknowledgements the broker has, once."""
        newest = None
        while self._confirmed:
            newest = self._confirmed.popleft()
        return newest

    @property
    def lag(self) -> int | None:
        """Messages that wait, here and there; what another consumer of the queue has got is not among them."""
        return None if self._left is None else self._left + len(self._inbox)

    def close(self) -> None:
        """Acknowledge what was asked for, and let go of the rest: the broker gives it to whoever comes next."""
        self._stopping.set()
        self._wake()
        self._thread.join(_CLOSE_S)

    def _wake(self) -> None:
        connection = self._connection
        if connection is not None:
            try:
                connection.add_callback_threadsafe(lambda: None)
            except errors():
                pass  # it ends just now

    # --- the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        outage = Outage(self._config)
        while not self._stopping.is_set():
            try:
                self._serve(outage)
            except errors() as error:
                self._connection = None
                if not is_passing(error) or outage.is_too_long(error):
                    self._error = explained(self._config, SourceError, error)
                    return
                LOGGER.warning("queue %r: %s; it is tried again", self._queue, told(error))
                self._stopping.wait(self._config.network_recovery_interval / 1000)
            except PenstockError as error:
                self._error = error
                return
            except Exception as error:  # nobody else would hear of it
                self._error = explained(self._config, SourceError, error)
                return

    def _serve(self, outage: Outage) -> None:
        connection = package().BlockingConnection(parameters(self._config, SourceError, self._name))
        try:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=self._config.prefetch_count)
            channel.add_on_cancel_callback(self._on_cancel)
            self._inbox.clear()  # it comes again, and what was read of it can be acknowledged only then
            self._is_cancelled = False
            self._delivered = self._acknowledged = 0
            self.number, self.connected_at = self.number + 1, time.monotonic()
            # also before: a quorum queue counts against each message that it was delivered and given back
            self._look(channel, consumers=0)
            channel.basic_consume(self._queue, self._on_message, exclusive=self._is_alone)
            self._look(channel, consumers=1)
            outage.ended()
            self._connection = connection
            self._turn(connection, channel)
        finally:
            self._connection = None
            if connection.is_open:
                connection.close()

    def _turn(self, connection: Any, channel: Any) -> None:
        asked_at = 0.0
        while True:
            emptied_at = None
            stopping = self._stopping.is_set()
            tag, checkpoint_id = self._requested()
            if tag > self._acknowledged:
                channel.basic_ack(tag, multiple=True)
                self._acknowledged = tag
            if checkpoint_id is not None or self._is_cancelled or time.monotonic() >= asked_at:
                # The queue answers behind all acknowledgements that were sent before: it has them. One that has gone is an error here.
                emptied_at = self._ask(channel)
                asked_at = time.monotonic() + _ASKED_S
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

    def _ask(self, channel: Any) -> float | None:
        """How many messages are left; when it was, if there were none."""
        now = time.monotonic()
        found = self._look(channel, consumers=1)
        self._left = found.message_count
        if found.message_count or not found.consumer_count:  # a quorum queue that has no leader says 0 to both
            return None
        # An answer overtakes the deliveries that have left the queue and not yet the broker's channel; the next one does not.
        self._look(channel, consumers=1)
        return now

    def _look(self, channel: Any, *, consumers: int) -> Any:
        """What the queue says of itself. No more than these may read it if one is to be alone: a quorum queue lets others in all the same."""
        found = channel.queue_declare(self._queue, passive=True).method
        if self._is_alone and found.consumer_count > consumers:
            raise package().exceptions.AMQPConnectionError(
                f"queue {self._queue!r} has {found.consumer_count - consumers} other consumers and is for exclusive use"
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
        """How often a quorum queue was given a message back; at its limit it drops the message, and tells nobody who reads."""
        if not self._has_warned and isinstance(count, int) and count >= MANY_TIMES:
            self._has_warned = True
            LOGGER.warning(
                "queue %r was given a message back %d times: a quorum queue drops it at its delivery-limit (of RabbitMQ 4: 20). Let the job come to a "
                "checkpoint, or set a policy with delivery-limit -1",
                self._queue,
                count,
            )

    def _on_message(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._watch_count((properties.headers or {}).get("x-delivery-count", 0))
        seconds = properties.timestamp
        self._delivered = method.delivery_tag
        self._inbox.append(
            Delivery(
                self.number,
                method.delivery_tag,
                method.redelivered,
                time.monotonic(),
                properties.correlation_id,
                None if seconds is None else int(seconds) * 1000,
                body,
            )
        )
