"""Find sensors that stay too hot, from one Kafka topic to another, exactly once.

A reading is `{"sensor": "s1", "time": 1700000000000, "celsius": 21.5}`. The job emits an alert when three readings of a sensor
in a row are above the limit. Invalid messages go to a separate topic, with their partition and offset.

The README has the commands.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    RejectedMessage,
)
from penstock.datastream.formats.json import JsonLinesEncoder, JsonLinesFormat
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

LIMIT = 30.0
READINGS = 3
REJECTED = OutputTag("malformed-records")


class Reading(NamedTuple):
    sensor: str
    time: int
    """Event time, ms since the epoch."""
    celsius: float


class Alert(NamedTuple):
    sensor: str
    time: int
    celsius: float


class TooHot(KeyedProcessFunction):
    """An alert at the third reading above the limit. The next alert needs a reading below the limit first."""

    def open(self, runtime_context: Any) -> None:
        self.hot = runtime_context.get_state(ValueStateDescriptor("hot", int))

    def process_element(self, value: Reading, ctx: Any) -> Iterator[Alert]:
        if value.celsius <= LIMIT:
            self.hot.clear()
            return
        count = (self.hot.value() or 0) + 1
        self.hot.update(count)
        if count == READINGS:
            yield Alert(value.sensor, value.time, value.celsius)


def sink(servers: str, topic: str, messages: Any) -> KafkaSink:
    """Return a sink that writes exactly once into a topic."""
    builder = KafkaSink.builder().set_bootstrap_servers(servers).set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    return (
        builder.set_transactional_id_prefix(f"kafka-alerts-{topic}")
        .set_record_serializer(messages.set_topic(topic).build())
        .build()
    )


def build(env: StreamExecutionEnvironment, servers: str) -> None:
    """Build the job: readings -> by sensor -> alerts."""
    source = KafkaSource.builder().set_bootstrap_servers(servers).set_topics("readings").set_group_id("kafka-alerts")
    source = source.set_starting_offsets(KafkaOffsetsInitializer.earliest()).set_on_error("side-output", REJECTED)
    source = source.set_value_only_deserializer(JsonLinesFormat(Reading))
    by_time = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=5)).with_timestamp_assigner("time")
    readings = env.from_source(source.build(), by_time.with_idleness(timedelta(seconds=10)), "readings").uid("readings")
    alerts = readings.key_by("sensor").process(TooHot(), output_type=Alert).name("too hot").uid("too-hot")
    by_sensor = KafkaRecordSerializationSchema.builder().set_key_serialization_schema(lambda alert: alert.sensor)
    as_json = by_sensor.set_value_serialization_schema(JsonLinesEncoder())
    alerts.sink_to(sink(servers, "alerts", as_json)).name("alerts to Kafka").uid("alerts-sink")
    rejected = readings.get_side_output(REJECTED).map(where_it_stood).uid("rejected")
    plain = KafkaRecordSerializationSchema.builder().set_value_serialization_schema(JsonLinesEncoder())
    rejected.sink_to(sink(servers, "rejected", plain)).name("rejected to Kafka").uid("rejected-sink")


def where_it_stood(message: RejectedMessage) -> dict[str, Any]:
    text = (message.value or b"").decode(errors="backslashreplace")
    return {"partition": message.partition, "offset": message.offset, "reason": message.reason, "value": text}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    known = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")
    arguments.add_argument("--servers", default=known, help="brokers as host:port, separated by commas")
    options, _ = arguments.parse_known_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    build(env, options.servers)
    env.execute("kafka alerts")


if __name__ == "__main__":
    main()
