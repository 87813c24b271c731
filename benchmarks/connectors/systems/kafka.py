"""Kafka: a broker, topics of four partitions; confluent-kafka without Penstock."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.connectors import job
from benchmarks.connectors.case import Case
from benchmarks.connectors.cost import Cost, consumed, timed
from benchmarks.connectors.records import BATCH, FIELDS, decode, encode, expect, messages, parts, rows
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from penstock.datastream.formats.json import JsonLinesEncoder, JsonLinesFormat
from tools.servers.kafka import KafkaServer

PARTITIONS = 4
PER_TRANSACTION = 100_000
_LIKE_PENSTOCK = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 1_000_000,
}


@contextmanager
def kafka(folder: Path) -> Iterator[list[Case]]:
    with KafkaServer(folder) as server:
        topics = _Topics(server)
        produce = "confluent-kafka: produce for each record, idempotent, lz4"
        yield [
            Case(
                "kafka.source",
                partial(_read, topics),
                partial(_consume, topics),
                "confluent-kafka: consume by 10,000",
                share=0.7,
            ),
            Case(
                "kafka.sink-exactly-once",
                lambda count: _write(topics, count, DeliveryGuarantee.EXACTLY_ONCE),
                lambda count: _produce(topics, count, "bare"),
                f"{produce}, a transaction for every {PER_TRANSACTION:,}",
                share=0.7,
            ),
            Case(
                "kafka.sink-at-least-once",
                lambda count: _write(topics, count, DeliveryGuarantee.AT_LEAST_ONCE),
                lambda count: _produce(topics, count),
                produce,
                share=0.7,
            ),
            Case(
                "kafka.sink-none",
                lambda count: _write(topics, count, DeliveryGuarantee.NONE),
                lambda count: _produce(topics, count),
                produce,
                share=0.7,
            ),
        ]


class _Topics:
    def __init__(self, server: KafkaServer) -> None:
        self.server = server
        self._numbers = itertools.count()
        self._filled: dict[int, str] = {}

    def new(self) -> str:
        name = f"topic-{next(self._numbers)}"
        self.server.create_topic(name, PARTITIONS)
        return name

    def filled(self, count: int) -> str:
        """Return the name of a topic with this many readings."""
        from confluent_kafka import Producer

        if count not in self._filled:
            name = self._filled[count] = self.new()
            producer = Producer({"bootstrap.servers": self.server.bootstrap_servers, **_LIKE_PENSTOCK})
            for number, part in enumerate(parts(messages(count), 1000)):
                producer.produce_batch(name, [{"value": value} for value in part], partition=number % PARTITIONS)
                producer.poll(0)
            producer.flush()
        return self._filled[count]

    def check(self, name: str, count: int) -> None:
        """Check that this many messages can be read with `read_committed`."""
        expect(sum(map(len, self.consumed(name, count, isolation="read_committed"))), count, "messages written")

    def consumed(self, name: str, count: int, isolation: str = "read_uncommitted") -> Iterator[list[Any]]:
        """Yield the messages in batches of 10,000."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.server.bootstrap_servers,
                "group.id": "bare",
                "enable.auto.commit": False,
                "isolation.level": isolation,
            }
        )
        consumer.assign([TopicPartition(name, number, 0) for number in range(PARTITIONS)])
        came = 0
        try:
            while came < count:
                found = consumer.consume(min(BATCH, count - came), 10.0)
                if not found:
                    return
                came += len(found)
                yield found
        finally:
            consumer.close()


def _read(topics: _Topics, count: int) -> Cost:
    source = KafkaSource.builder().set_bootstrap_servers(topics.server.bootstrap_servers)
    source = source.set_topics(topics.filled(count)).set_group_id("penstock")
    source = source.set_starting_offsets(KafkaOffsetsInitializer.earliest())
    source = source.set_bounded(KafkaOffsetsInitializer.latest())
    return job.read(source.set_value_only_deserializer(JsonLinesFormat(FIELDS)).build(), count)


def _consume(topics: _Topics, count: int) -> Cost:
    name = topics.filled(count)
    found = topics.consumed(name, count)
    return consumed(count, ([decode(message.value()) for message in some] for some in found))


def _write(topics: _Topics, count: int, guarantee: DeliveryGuarantee) -> Cost:
    name = topics.new()
    values = KafkaRecordSerializationSchema.builder().set_topic(name)
    sink = KafkaSink.builder().set_bootstrap_servers(topics.server.bootstrap_servers)
    sink = sink.set_record_serializer(values.set_value_serialization_schema(JsonLinesEncoder()).build())
    sink = sink.set_delivery_guarantee(guarantee)
    if guarantee is DeliveryGuarantee.EXACTLY_ONCE:
        sink = sink.set_transactional_id_prefix(name)
    cost = job.write(sink.build(), count)
    topics.check(name, count)
    return cost


def _produce(topics: _Topics, count: int, transactional_id: str = "") -> Cost:
    name = topics.new()
    cost = timed(count, lambda: _produced(topics.server, name, count, transactional_id))
    topics.check(name, count)
    return cost


def _produced(server: KafkaServer, name: str, count: int, transactional_id: str) -> None:
    from confluent_kafka import Producer

    more = {"transactional.id": transactional_id} if transactional_id else {}
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, **_LIKE_PENSTOCK, **more})
    if transactional_id:
        producer.init_transactions()
    for part in parts(rows(count), PER_TRANSACTION):
        if transactional_id:
            producer.begin_transaction()
        for row in part:
            producer.produce(name, encode(row))
        if transactional_id:
            producer.commit_transaction()
    producer.flush()
