"""The soak's job from Kafka to Kafka: its source and sinks, the writer of its input topic, and the check of its output.

The records are those of `tests.chaos.job`, with payloads of up to 1 MiB. A thread of the soak writes them at the plan's rate
during all faults of the brokers. The numbers of a key are in one partition, in order. The end of the input is known after the
thread has stopped. The soak then drains the job.
"""

from __future__ import annotations

import struct
import threading
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from penstock.connectors.formats.encode import JsonLinesEncoder
from penstock.connectors.kafka.sink.coordinator_client import CoordinatorClient
from penstock.datastream.connectors.kafka import (
    ConsumerRecord,
    DeliveryGuarantee,
    KafkaRecordDeserializationSchema,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from tests.chaos.faults.orders import Orders
from tests.chaos.job import STEP_MS, Numbered, SoakPlan, payload
from tests.chaos.verdict import problems_in
from tests.integration.kafka.support import read, values_of

if TYPE_CHECKING:
    from penstock.common.watermark_strategy import WatermarkStrategy
    from penstock.connectors.core.sink import Sink
    from penstock.datastream.data_stream import DataStream
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from tools.servers.kafka import KafkaServer

BROKERS = 3
IN, NUMBERS, WINDOWS = "in", "numbers", "windows"
PARTITIONS = {IN: 4, NUMBERS: 3, WINDOWS: 2}
PREFIX = "soak"
_LARGEST = "4000000"
_HEAD = struct.Struct(">IQ")
_FLUSH_S = 120.0


class KafkaEnds:
    """The Kafka source and sinks of the job."""

    def __init__(self, plan: SoakPlan) -> None:
        self.plan = plan

    def numbers(self, env: StreamExecutionEnvironment, strategy: WatermarkStrategy) -> DataStream:
        orders = Orders(self.plan.orders)

        def obeyed(value: Numbered) -> Numbered:
            orders.obey("source")
            return value

        source = KafkaSource.builder().set_bootstrap_servers(self.plan.kafka).set_topics(IN).set_group_id("soak")
        source = source.set_deserializer(KafkaRecordDeserializationSchema.of(numbered)).set_discovery_interval(2_000)
        numbers = env.from_source(source.build(), strategy, "numbers").uid("numbers")
        return numbers.map(obeyed).name("obeyed").uid("obeyed")

    def sink(self, name: str) -> Sink:
        schema = KafkaRecordSerializationSchema.builder().set_topic(name)
        schema = schema.set_value_serialization_schema(JsonLinesEncoder())
        sink = KafkaSink.builder().set_bootstrap_servers(self.plan.kafka).set_record_serializer(schema.build())
        sink = sink.set_transactional_id_prefix(f"{PREFIX}-{name}")
        return sink.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).build()


def message(key: int, number: int) -> bytes:
    return _HEAD.pack(key, number) + payload(key, number)


def numbered(record: ConsumerRecord) -> Numbered:
    """Decode a message.

    >>> from collections import namedtuple
    >>> numbered(namedtuple("Message", "value")(message(1, 2)))
    Numbered(key=1, number=2, time=200, payload=b'1/2;1/2;1')
    """
    value = record.value
    assert value is not None
    key, number = _HEAD.unpack_from(value)
    return Numbered(key, number, number * STEP_MS, value[_HEAD.size :])


class Feeder(threading.Thread):
    """A thread that writes the records at the plan's rate."""

    def __init__(self, plan: SoakPlan) -> None:
        super().__init__(name="feeder", daemon=True)
        self._plan = plan
        self._ended = threading.Event()
        self._refused: list[str] = []
        settings = {"enable.idempotence": True, "message.max.bytes": _LARGEST, "message.timeout.ms": 600_000}
        self._producer = Producer({"bootstrap.servers": plan.kafka, "log_level": 0, **settings})
        self.per_key = 0

    def run(self) -> None:
        began = time.monotonic()
        while not self._ended.wait(
            max(0.0, began + self.per_key * self._plan.keys / self._plan.rate - time.monotonic())
        ):
            for key in range(self._plan.keys):
                self._write(key % PARTITIONS[IN], message(key, self.per_key))
            self.per_key += 1

    def _write(self, partition: int, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(IN, value, partition=partition, on_delivery=self._on_delivery)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def _on_delivery(self, error: Any, _: Any) -> None:
        if error is not None:
            self._refused.append(str(error))

    def end(self) -> int:
        """Stop writing, and return the number of records per key."""
        self._ended.set()
        self.join()
        assert self._producer.flush(_FLUSH_S) == 0, "the brokers do not accept the soak's records"
        assert not self._refused, self._refused[:3]
        return self.per_key


class KafkaRun:
    """The soak's side of Kafka. `kafka` must be running."""

    def __init__(self, kafka: KafkaServer) -> None:
        self.kafka = kafka
        self._feeder: Feeder | None = None

    def begin(self, plan: SoakPlan) -> None:
        for name, partitions in PARTITIONS.items():
            # the messages have event times of 1970, so retention by time would delete them immediately
            self.kafka.create_topic(name, partitions, max_message_bytes=_LARGEST, retention_ms="-1")
        self._feeder = Feeder(plan)
        self._feeder.start()

    def end(self) -> int:
        """Stop writing, and return the number of records per key."""
        assert self._feeder is not None
        return self._feeder.end()

    def problems(self, plan: SoakPlan) -> list[str]:
        servers = self.kafka.bootstrap_servers
        return problems_in(plan, *(values_of(read(servers, name)) for name in (NUMBERS, WINDOWS)))

    def open_transactions(self) -> list[str]:
        """Return the open transactions, which no client will ever end."""
        client = CoordinatorClient({"bootstrap.servers": self.kafka.bootstrap_servers}, 60.0, lambda: None)
        try:
            return [id for id, state in client.find(PREFIX).items() if state == "Ongoing"]
        finally:
            client.close()
