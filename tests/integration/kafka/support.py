"""Fill and read topics with the plain client. The job between two topics shows in its output which records were lost or repeated."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.common.serialization import SerializationSchema
from penstock.common.typeinfo import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.formats.encode import JsonLinesEncoder
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSinkBuilder,
    KafkaSource,
    KafkaSourceBuilder,
)
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from tests.in_process import environment
from tests.integration.engine.selfcheck.masters import latest_checkpoint
from tools.servers.kafka import KafkaServer

KEYS = 7
JOB_ID = "c0ffee00c0ffee00c0ffee00c0ffee00"
"""The job id of `endless_job`."""


def new_name(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def topic(kafka: KafkaServer, partitions: int = 1, prefix: str = "topic") -> str:
    """Create a new, empty topic and return its name."""
    name = new_name(prefix)
    kafka.create_topic(name, partitions)
    return name


def fill(servers: str, name: str, values: list[Any], partitions: int = 1, **more: Any) -> None:
    """Write values (bytes, or JSON-able values), the n-th into partition n modulo `partitions`."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for index, value in enumerate(values):
        data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(name, data, partition=index % partitions, **more)
        if index % 1000 == 999:
            producer.poll(0)
    assert producer.flush(60) == 0


def read(servers: str, name: str, *, committed: bool = True) -> list[Any]:
    """Return all messages, ordered by partition and offset."""
    level = "read_committed" if committed else "read_uncommitted"
    settings = {"group.id": "read-back", "isolation.level": level, "auto.offset.reset": "error"}
    consumer = Consumer({"bootstrap.servers": servers, "enable.partition.eof": True, **settings})
    try:
        partitions = consumer.list_topics(name, timeout=30).topics[name].partitions
        consumer.assign([TopicPartition(name, number, 0) for number in partitions])
        messages, ended = [], set()
        while len(ended) < len(partitions):
            for message in consumer.consume(1000, 1.0):
                if message.error() is None:
                    messages.append(message)
                else:
                    assert message.error().name() == "_PARTITION_EOF", message.error()
                    ended.add(message.partition())
        return sorted(messages, key=lambda message: (message.partition(), message.offset()))
    finally:
        consumer.close()


def values_of(messages: list[Any]) -> list[Any]:
    return [json.loads(message.value()) for message in messages]


def source(servers: str, name: str, fields: Any = None) -> KafkaSourceBuilder:
    builder = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(name)
    return builder.set_value_only_deserializer(JsonLinesFormat(fields))


def sink(
    servers: str, name: str, guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE, prefix: str = ""
) -> KafkaSinkBuilder:
    schema = KafkaRecordSerializationSchema.builder().set_topic(name)
    schema = schema.set_value_serialization_schema(JsonLinesEncoder())
    builder = KafkaSink.builder().set_bootstrap_servers(servers).set_delivery_guarantee(guarantee)
    return builder.set_transactional_id_prefix(prefix or new_name("prefix")).set_record_serializer(schema.build())


class CountPerKey(KeyedProcessFunction):
    """A function that adds to each record the count of its key. A lost record leaves a gap, and a repeated one counts twice."""

    def open(self, runtime_context: Any) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield {"id": value["id"], "key": value["key"], "count": count}


def records(count: int, start: int = 0) -> list[dict[str, int]]:
    return [{"id": n, "key": n % KEYS} for n in range(start, start + count)]


def counting(env: StreamExecutionEnvironment, reads: Any, writes: Any) -> None:
    """Build the job: Kafka -> keyed state -> Kafka."""
    stream = env.from_source(reads, WatermarkStrategy.no_watermarks(), "in").uid("in")
    counted = stream.key_by(lambda record: record["key"]).process(CountPerKey()).uid("count")
    counted.sink_to(writes).uid("out")


def verdict(servers: str, name: str, count: int) -> str:
    """Return the errors in the output of `counting` for records 0 to `count`, or "" if it is correct."""
    seen = values_of(read(servers, name))
    ids = Counter(value["id"] for value in seen)
    lost = [n for n in range(count) if n not in ids]
    repeated = [n for n, times in ids.items() if times > 1]
    strange = [n for n in ids if n >= count]
    wrong = []
    for key in range(KEYS):
        counts = sorted(value["count"] for value in seen if value["key"] == key)
        if counts != list(range(1, len(counts) + 1)):
            wrong.append(key)
    if lost or repeated or strange or wrong:
        return f"lost {lost[:5]} ({len(lost)}), repeated {repeated[:5]} ({len(repeated)}), strange {strange[:5]}, counts of {wrong}"
    return ""


def eventually(condition: Any, seconds: float = 60.0, description: str = "it") -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {description} in vain"
        time.sleep(0.1)


def await_checkpoints(folder: Path, count: int = 2) -> None:
    """Wait until the job in `folder` has completed this many more checkpoints. Then it has committed all results of earlier records."""
    wanted = latest_checkpoint(folder, JOB_ID) + count
    eventually(lambda: latest_checkpoint(folder, JOB_ID) >= wanted, 60.0, f"checkpoint {wanted}")


__all__ = ["KafkaOffsetsInitializer", "Path", "SerializationSchema", "environment"]
