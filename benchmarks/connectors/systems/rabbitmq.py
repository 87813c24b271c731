"""RabbitMQ: a broker, durable queues; pika without Penstock."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pika

from benchmarks.connectors import job
from benchmarks.connectors.case import Case
from benchmarks.connectors.cost import Cost, consumed, timed
from benchmarks.connectors.records import BATCH, FIELDS, Wrong, decode, encode, messages, rows
from penstock.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQSink, RMQSource
from penstock.datastream.formats.json import JsonLinesEncoder, JsonLinesFormat
from tools.servers.rabbitmq import RabbitMQServer

PREFETCH = 20_000
_WAIT_S = 10.0


@contextmanager
def rabbitmq(folder: Path) -> Iterator[list[Case]]:
    with RabbitMQServer(folder) as server:
        queues = _Queues(server)
        consume = "pika: BlockingConnection.consume, an acknowledgement for every 10,000"
        yield [
            Case(
                "rabbitmq.source-exactly-once",
                partial(_read, queues, True),
                partial(_consume, queues),
                consume,
                share=0.07,
            ),
            Case(
                "rabbitmq.source-at-least-once",
                partial(_read, queues, False),
                partial(_consume, queues),
                consume,
                share=0.07,
            ),
            Case(
                "rabbitmq.sink",
                partial(_write, queues),
                partial(_publish, queues),
                "pika: BlockingConnection.basic_publish, persistent, without confirmations",
                share=0.07,
            ),
        ]


class _Queues:
    def __init__(self, server: RabbitMQServer) -> None:
        self.server = server
        self._numbers = itertools.count()

    @contextmanager
    def channel(self) -> Iterator[Any]:
        with pika.BlockingConnection(pika.URLParameters(self.server.uri)) as connection:
            yield connection.channel()

    @property
    def config(self) -> RMQConnectionConfig:
        return RMQConnectionConfig.Builder().set_uri(self.server.uri).set_prefetch_count(PREFETCH).build()

    def new(self, count: int = 0) -> str:
        """Return the name of a queue with this many readings, each with a separate id."""
        name = f"readings-{next(self._numbers)}"
        with self.channel() as channel:
            channel.queue_declare(name, durable=True)
            for number, message in enumerate(messages(count) if count else ()):
                channel.basic_publish("", name, message, pika.BasicProperties(correlation_id=str(number)))
        return name

    def check(self, name: str, count: int) -> None:
        """Check that this many messages are in the queue, after the broker has counted all of them."""
        deadline = time.monotonic() + _WAIT_S
        with self.channel() as channel:
            while (found := channel.queue_declare(name, passive=True).method.message_count) != count:
                if time.monotonic() > deadline:
                    raise Wrong(f"messages in {name}: {found}, expected {count}")
            channel.queue_delete(name)


def _read(queues: _Queues, with_ids: bool, count: int) -> Cost:
    name = queues.new(count)
    cost = job.read(RMQSource(queues.config, name, with_ids, JsonLinesFormat(FIELDS)), count)
    queues.check(name, 0)
    return cost


def _consume(queues: _Queues, count: int) -> Cost:
    name = queues.new(count)
    cost = consumed(count, _consumed(queues, name, count))
    queues.check(name, 0)
    return cost


def _consumed(queues: _Queues, name: str, count: int) -> Iterator[list[Any]]:
    with queues.channel() as channel:
        channel.basic_qos(prefetch_count=PREFETCH)
        values: list[Any] = []
        for came, (method, _, body) in enumerate(channel.consume(name, inactivity_timeout=_WAIT_S), 1):
            if method is None:
                return
            values.append(decode(body))
            if len(values) == BATCH or came == count:
                channel.basic_ack(method.delivery_tag, multiple=True)
                yield values
                values = []


def _write(queues: _Queues, count: int) -> Cost:
    name = queues.new()
    cost = job.write(RMQSink(queues.config, name, JsonLinesEncoder()), count)
    queues.check(name, count)
    return cost


def _publish(queues: _Queues, count: int) -> Cost:
    name = queues.new()
    cost = timed(count, partial(_published, queues, name, count))
    queues.check(name, count)
    return cost


def _published(queues: _Queues, name: str, count: int) -> None:
    persistent = pika.BasicProperties(delivery_mode=2)
    with queues.channel() as channel:
        for row in rows(count):
            channel.basic_publish("", name, encode(row), persistent, mandatory=True)
