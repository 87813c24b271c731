"""Kafka in the conformance tests: a job from one topic to another."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.connectors.kafka.sink.committer import KafkaCommitter
from tests.integration.connectors.connector import Call, Connector
from tests.integration.connectors.program import KEYS
from tests.integration.kafka.support import read, sink, source, values_of

PARTITIONS = 4


class KafkaConnector(Connector):
    """The topics `a…` and `b…`. A partition contains all numbers of a key. `address` is the list of brokers."""

    name = "kafka"
    server = "kafka"
    calls = {
        "before commit": Call(KafkaCommitter, "commit", is_before=True),
        "after commit": Call(KafkaCommitter, "commit"),
    }
    undecodable = "malformed message"
    is_ordered = True
    pause_s = 5.0

    @classmethod
    def address_of(cls, server: Any) -> str:
        return str(server.bootstrap_servers)

    def source(self) -> Any:
        builder = source(self.address, f"a{self.id}", {"n": int}).set_group_id(f"g{self.id}")
        return builder.set_on_error("side-output" if self.is_healed else "fail").build()

    def number_of(self, record: Any) -> int:
        return int(record["n"])

    def sink(self) -> Any:
        return sink(self.address, f"b{self.id}", prefix=f"t{self.id}").build()

    def set_up(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.address})
        for created in admin.create_topics([NewTopic(f"{name}{self.id}", PARTITIONS) for name in "ab"]).values():
            created.result()

    def feed(self, numbers: Iterable[int]) -> None:
        self._produce((json.dumps({"n": number}), number % KEYS % PARTITIONS) for number in numbers)

    def feed_poison(self) -> None:
        self._produce([("none", 0)])

    def _produce(self, messages: Iterable[tuple[str, int]]) -> None:
        producer = Producer({"bootstrap.servers": self.address, "enable.idempotence": True, "linger.ms": 0})
        for value, partition in messages:
            producer.produce(f"a{self.id}", value.encode(), partition=partition)
        assert producer.flush(60) == 0

    def rows(self) -> list[tuple[int, str]]:
        return [(row["id"], row["key"]) for row in values_of(read(self.address, f"b{self.id}"))]
