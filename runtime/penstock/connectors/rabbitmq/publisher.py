"""A publisher in its own thread, which handles heartbeats and confirmations while the job does other work.

The publisher keeps a message until the broker has confirmed it. If the connection is lost before that, the publisher sends the message
again on a new connection.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from penstock.common.errors import PenstockError, SinkError
from penstock.connectors.messages.inbox import Background
from penstock.connectors.rabbitmq.client import (
    LOGGER,
    PATIENCE_S,
    Outage,
    errors,
    explained,
    is_passing,
    message_of,
    package,
    parameters,
)
from penstock.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.connectors.rabbitmq.message import Message

MOST = 10_000
MOST_BYTES = 16 << 20
"""Maximum number of unconfirmed messages, and maximum bytes of their bodies. At either limit, `send` waits."""
_CLOSE_S = 5.0


class Publisher(Background):
    """A publisher of messages. It runs in a separate thread.

    Args:
        name: the connection's name, for the broker's operator.
    """

    def __init__(self, config: RMQConnectionConfig, name: str) -> None:
        super().__init__()
        self._config = config
        self._name = name
        self._outgoing: deque[Message] = deque()
        self._unconfirmed: dict[int, Message] = {}
        """Unconfirmed messages of the current connection by tag, in order."""
        self._waiting = self._bytes = 0
        self._moved_at = time.monotonic()
        self._is_blocked = False
        self._connection: Any = None
        self._channel: Any = None
        self._lost: Exception | None = None
        self._tag = 0
        self._outage = Outage(config)
        self._thread = self._start(f"rabbitmq {name}", self._run)

    # --- the task's side --------------------------------------------------------------------------------------

    def send(self, messages: list[Message]) -> None:
        """Send messages. Wait while too many are unconfirmed.

        Raises:
            SinkError: the broker has rejected a message, could not route it, or accepts no messages.
        """
        for part, size in _parts(messages):
            self._wait(MOST - len(part), max(0, MOST_BYTES - size))
            with self.changed:
                if not self._waiting:
                    self._moved_at = time.monotonic()
                self._waiting += len(part)
                self._bytes += size
            self._outgoing.extend(part)
            self._call(self._pump)

    def flush(self) -> None:
        """Wait until the broker has confirmed all messages.

        Raises:
            SinkError: see `send`.
        """
        self._wait(0, MOST_BYTES)

    def check(self) -> None:
        """Raise the error of the publisher's thread, if the thread has failed.

        Raises:
            SinkError: see `send`.
        """
        if self.error is not None:
            raise self.error

    def _wait(self, most: int, most_bytes: int) -> None:
        with self.changed:
            while self.error is None and (self._waiting > most or self._bytes > most_bytes):
                self.changed.wait(1.0)
                silent = time.monotonic() - self._moved_at
                if silent > 2 * PATIENCE_S:
                    raise SinkError(
                        f"{self._config.shown} has confirmed none of {self._waiting} messages for {silent:.0f} s"
                        f"{': it accepts none, because it is short of memory or disk' if self._is_blocked else ''}",
                        remedy="check the broker's alarms (rabbitmq-diagnostics alarms) and its queues; the job retries when it fails over",
                    )
        self.check()

    def close(self) -> None:
        self._stop()
        self._call(self._close)
        self._thread.join(_CLOSE_S)

    def _call(self, function: Any) -> None:
        connection = self._connection
        if connection is not None:
            connection.ioloop.add_callback_threadsafe(function)

    # --- the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closed:
            error = self._serve()
            if self._is_closed or self.error is not None:
                break
            if not is_passing(error) or self._outage.is_too_long(error):
                raise error
            LOGGER.warning("%s: %s; retrying", self._config.shown, message_of(error))
            time.sleep(self._config.network_recovery_interval / 1000)

    def _explained(self, error: Exception) -> PenstockError:
        return explained(self._config, SinkError, error)

    def _serve(self) -> Exception:
        """Run one connection until it ends, and return the reason for its end."""
        self._lost = None
        self._is_blocked = False
        connection = package().SelectConnection(
            parameters(self._config, SinkError, self._name),
            on_open_callback=lambda opened: opened.channel(on_open_callback=self._on_channel),
            on_open_error_callback=self._on_end,
            on_close_callback=self._on_end,
        )
        connection.add_on_connection_blocked_callback(lambda *_: self._on_blocked(is_blocked=True))
        connection.add_on_connection_unblocked_callback(lambda *_: self._on_blocked(is_blocked=False))
        self._connection = connection
        if self._is_closed:
            self._call(self._close)
        try:
            connection.ioloop.start()
        except errors() as error:
            self._lost = self._lost or error
        self._connection = self._channel = None
        connection.ioloop.close()
        self._outgoing.extendleft(reversed(self._unconfirmed.values()))
        self._unconfirmed = {}
        return self._lost or RuntimeError("it was closed before the connection was complete")

    def _on_channel(self, channel: Any) -> None:
        self._tag = 0
        channel.add_on_close_callback(self._on_channel_end)
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirmation, callback=lambda _: self._on_ready(channel))

    def _on_ready(self, channel: Any) -> None:
        self._channel = channel
        # If messages wait, the outage ends only with a confirmation, because the next message may be the message that
        # ends every connection.
        if not self._outgoing:
            self._outage.ended()
        self._pump()

    def _pump(self) -> None:
        channel = self._channel
        while self._outgoing and channel is not None and channel.is_open:
            message = self._outgoing.popleft()
            self._tag += 1
            self._unconfirmed[self._tag] = message
            channel.basic_publish(
                message.exchange, message.routing_key, message.body, message.properties, mandatory=True
            )

    def _on_confirmation(self, frame: Any) -> None:
        method = frame.method
        last = method.delivery_tag
        if method.NAME != "Basic.Ack":
            message = self._unconfirmed.get(last)
            self._fail(
                SinkError(
                    f"{self._config.shown} has rejected a message{_to(message)}",
                    remedy="check whether the queue is full (x-max-length with reject-publish), and look for errors in the broker's log. "
                    "The job writes the message again when it fails over",
                )
            )
            return
        if method.multiple:
            tags = []
            for tag in self._unconfirmed:  # in ascending order
                if tag > last:
                    break
                tags.append(tag)
        else:
            tags = [last]
        self._outage.ended()
        with self.changed:
            for tag in tags:
                message = self._unconfirmed.pop(tag, None)
                if message is not None:
                    self._waiting -= 1
                    self._bytes -= len(message.body)
            self._moved_at = time.monotonic()
            self.changed.notify_all()

    def _on_return(self, _channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        where = _to(Message(method.exchange, method.routing_key, body, None))
        self._fail(
            SinkError(
                f"{self._config.shown} has no queue for a message{where}: {method.reply_code} {method.reply_text}",
                remedy="declare the queue, or bind one to the exchange with this routing key",
            )
        )

    def _on_blocked(self, *, is_blocked: bool) -> None:
        self._is_blocked = is_blocked

    def _on_channel_end(self, _channel: Any, reason: Exception) -> None:
        self._channel = None
        self._lost = self._lost or reason
        self._close()

    def _close(self) -> None:
        connection = self._connection
        if connection is not None and connection.is_open:
            connection.close()
        elif connection is not None and self._is_closed and not connection.is_closing:
            connection.ioloop.stop()

    def _on_end(self, connection: Any, reason: Any) -> None:
        self._lost = self._lost or (reason if isinstance(reason, Exception) else RuntimeError(str(reason)))
        connection.ioloop.stop()


def _parts(messages: list[Message]) -> Iterator[tuple[list[Message], int]]:
    """Yield groups of messages within the limits for unconfirmed messages, and the bytes of each group's bodies. A larger message is a
    separate group."""
    part: list[Message] = []
    size = 0
    for message in messages:
        if part and (len(part) == MOST or size + len(message.body) > MOST_BYTES):
            yield part, size
            part, size = [], 0
        part.append(message)
        size += len(message.body)
    if part:
        yield part, size


def _to(message: Message | None) -> str:
    if message is None:
        return ""
    exchange = f"exchange {message.exchange!r}, " if message.exchange else ""
    return f" to {exchange}routing key {message.routing_key!r}, of {len(message.body)} bytes"
