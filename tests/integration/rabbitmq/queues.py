"""A separate queue for each test, with helpers that read and write it."""

from __future__ import annotations

import logging
import socket
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pika

from penstock.common.serialization import SimpleStringSchema
from penstock.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQSink, RMQSource
from tools.servers.rabbitmq import RabbitMQServer

logging.getLogger("pika").setLevel(logging.CRITICAL)


def config_of(uri: str, **options: int | str) -> RMQConnectionConfig:
    builder = RMQConnectionConfig.Builder().set_uri(uri).set_network_recovery_interval(100)
    for name, value in options.items():
        getattr(builder, f"set_{name}")(value)
    return builder.build()


@contextmanager
def channel_to(uri: str) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.URLParameters(uri))
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()


def cut(connection: Any) -> None:
    """Close a pika connection as a network failure does, if it exists."""
    transport = getattr(connection, "_transport", None)
    if transport is not None:
        try:
            transport._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the connection has just ended


class Queue:
    def __init__(self, server: RabbitMQServer, **arguments: Any) -> None:
        self.server = server
        self.name = f"q{uuid.uuid4().hex[:10]}"
        with channel_to(server.uri) as channel:
            channel.queue_declare(self.name, durable=True, arguments=arguments or None)

    def publish(self, numbers: Iterable[int]) -> None:
        """Publish persistent messages and wait for confirmations. Each body and correlation id is the number."""
        with channel_to(self.server.uri) as channel:
            channel.confirm_delivery()
            for number in numbers:
                properties = pika.BasicProperties(correlation_id=f"id-{number}", delivery_mode=2, timestamp=number)
                channel.basic_publish("", self.name, str(number).encode(), properties)

    def put(self, body: bytes, **properties: Any) -> None:
        with channel_to(self.server.uri) as channel:
            channel.basic_publish("", self.name, body, pika.BasicProperties(**properties))

    def left(self) -> int:
        """Return the number of messages that no consumer holds."""
        with channel_to(self.server.uri) as channel:
            return int(channel.queue_declare(self.name, passive=True).method.message_count)

    def take(self, count: int) -> list[tuple[Any, bytes]]:
        """Take this many messages, with their properties."""
        found: list[tuple[Any, bytes]] = []
        with channel_to(self.server.uri) as channel:
            for _, properties, body in channel.consume(self.name, auto_ack=True, inactivity_timeout=10):
                if properties is None:
                    break
                found.append((properties, body))
                if len(found) == count:
                    break
        return found

    def delete(self) -> None:
        with channel_to(self.server.uri) as channel:
            channel.queue_delete(self.name)

    def source(self, schema: Any = None, *, exact: bool = True, config: Any = None, **options: Any) -> RMQSource:
        config = config or config_of(self.server.uri)
        return RMQSource(config, self.name, exact, schema or SimpleStringSchema(), **options)

    def sink(self, schema: Any = None, **options: Any) -> RMQSink:
        return RMQSink(config_of(self.server.uri), self.name, schema or SimpleStringSchema(), **options)
