"""The data of the Kafka benchmark: readings in a topic, and the committed messages of the output topic."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from confluent_kafka import Producer

from benchmarks.kafka.outputs import difference, read_outputs
from benchmarks.kafka.systems import COUNTS
from benchmarks.kafka.topics import PARTITIONS, fill
from benchmarks.readings import Shape
from tests.integration.kafka.support import new_name, read, topic
from tools.servers.kafka import KafkaServer

pytestmark = pytest.mark.kafka
READINGS, SENSORS = 1000, 50


@pytest.fixture
def producer(kafka: KafkaServer) -> Iterator[Producer]:
    """Yield a producer with an open transaction."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": new_name("benchmark")})
    producer.init_transactions(30)
    producer.begin_transaction()
    yield producer
    producer.abort_transaction(30)


def test_a_sensors_readings_are_in_one_partition_under_its_name(kafka: KafkaServer) -> None:
    reads = topic(kafka, PARTITIONS)
    expected = fill(kafka, reads, Shape(READINGS, SENSORS, 0))
    assert expected.sum() == READINGS
    found = np.zeros(SENSORS, np.int64)
    for message in read(kafka.bootstrap_servers, reads):
        sensor = json.loads(message.value())["sensor_id"]
        assert message.key() == sensor.encode()
        assert message.partition() == int(sensor[1:]) % PARTITIONS
        found[int(sensor[1:])] += 1
    assert found.tolist() == expected.tolist()


def test_uncommitted_counts_are_lost_and_counts_committed_twice_are_repeated(
    kafka: KafkaServer, producer: Producer
) -> None:
    reads, writes = topic(kafka, PARTITIONS), topic(kafka, PARTITIONS)
    expected = fill(kafka, reads, Shape(READINGS, SENSORS, 0))
    counts = [(sensor, n + 1) for sensor, of_sensor in enumerate(expected.tolist()) for n in range(of_sensor)]

    def write(some: list[tuple[int, int]]) -> None:
        for sensor, n in some:
            producer.produce(writes, json.dumps({"sensor_id": f"s{sensor:07d}", "n": n}))
        assert producer.flush(30) == 0

    def verdict() -> str | None:
        return difference(read_outputs(kafka, writes), expected, COUNTS)

    write(counts[:10])
    assert verdict() == "1000 of 1000 counts lost, 0 repeated, 0 that no reading gives"
    producer.abort_transaction(30)
    producer.begin_transaction()
    write(counts)
    producer.commit_transaction(30)
    assert verdict() is None
    producer.begin_transaction()
    write([*counts[:3], (1, 10_000)])
    producer.commit_transaction(30)
    assert verdict() == "0 of 1000 counts lost, 3 repeated, 1 that no reading gives"
    producer.begin_transaction()
