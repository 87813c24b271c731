"""The kept job between Kafka topics: positions of partitions, and transactions without a commit.

The partitions of the input have different positions at the savepoint:

- Partition 0 was read to the middle.
- Partition 1 was read to its end. The end is behind the marker of a transaction. A marker has an offset but is no
  record.
- Partition 2 was never read. Reading starts after `SKIPPED`.
- Partition 3 was read to the middle.
- Partition 4 was added, and found, after the start of the job.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from confluent_kafka import Producer

from penstock.common.serialization import SimpleStringSchema
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaTopicPartition,
)
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

READS, WRITES, PREFIX = "golden-in", "golden-out", "golden"
FIRST_PARTITIONS, PARTITIONS = 4, 5
WRITTEN_PARTITIONS = 2
KEYS = 7
SKIPPED = ["skipped"] * 10
BEFORE: dict[int, list[int]] = {
    0: list(range(1_000)),
    1: list(range(1_000, 1_030)),
    3: list(range(2_000, 3_000)),
    4: list(range(3_000, 3_030)),
}
"""Records by partition at the savepoint. The job has not read all of them."""
END_OF_1 = len(BEFORE[1]) + 1
"""Position at the end of partition 1, behind its records and the marker."""
AFTER: dict[int, list[int]] = {
    partition: list(range(4_000 + partition * 10, 4_010 + partition * 10)) for partition in range(PARTITIONS)
}
"""Records by partition that are written after the savepoint."""


class Count(KeyedProcessFunction):
    """A function that numbers the records of each key, and names the subtask whose transaction contains the result."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: int, ctx: Any) -> Iterator[str]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield json.dumps([value, count, self.subtask])


def source(servers: str) -> KafkaSource:
    """Return the source of the input."""
    starts = {KafkaTopicPartition(READS, partition): 0 for partition in range(FIRST_PARTITIONS)}
    starts[KafkaTopicPartition(READS, 2)] = len(SKIPPED)
    return (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics(READS)
        .set_starting_offsets(KafkaOffsetsInitializer.offsets(starts))
        .set_value_only_deserializer(SimpleStringSchema())
        .set_discovery_interval(timedelta(seconds=1))
        .build()
    )


def build(env: StreamExecutionEnvironment, servers: str) -> None:
    """Declare the job."""
    schema = KafkaRecordSerializationSchema.builder().set_topic(WRITES)
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(servers)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(PREFIX)
        .set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
        .build()
    )
    texts = env.from_source(source(servers), WatermarkStrategy.no_watermarks(), "in").uid("in")
    numbers = texts.map(int).uid("numbers")
    numbers.key_by(lambda number: number % KEYS).process(Count()).uid("count").sink_to(sink).uid("out")


def write(servers: str, partition: int, values: list[Any], transactional_id: str = "") -> None:
    """Write values into a partition of the input, in a committed transaction if an id is given."""
    settings = {"transactional.id": transactional_id} if transactional_id else {}
    producer = Producer({"bootstrap.servers": servers, **settings})
    if transactional_id:
        producer.init_transactions(60)
        producer.begin_transaction()
    for value in values:
        producer.produce(READS, str(value), partition=partition)
    if transactional_id:
        producer.commit_transaction(60)
    assert producer.flush(60) == 0


def write_before(servers: str, partitions: range) -> None:
    """Write the records before the savepoint into these partitions."""
    for partition in partitions:
        if partition == 2:
            write(servers, partition, SKIPPED)
        elif partition == 1:
            write(servers, partition, BEFORE[partition], "golden-input")
        else:
            write(servers, partition, BEFORE[partition])
