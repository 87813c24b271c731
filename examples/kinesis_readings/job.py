"""Compute the mean of each sensor in windows of ten seconds, from one Kinesis stream to another.

A reading is `{"sensor": "s1", "time": 1764000000000, "celsius": 21.5}`, and `time` is its event time. The partition key of a mean
is its sensor, so that the means of a sensor keep their order.

The README has the commands.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.connectors.kinesis import KinesisSource, KinesisStreamsSink
from penstock.datastream.formats.json import JsonLinesEncoder, JsonLinesFormat
from penstock.datastream.functions import ProcessWindowFunction
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows


class Reading(NamedTuple):
    sensor: str
    time: int
    celsius: float


class Mean(NamedTuple):
    sensor: str
    begin: int
    readings: int
    celsius: float


class Means(ProcessWindowFunction):
    def process(self, key: str, context: Any, elements: Iterable[Reading]) -> Iterable[Mean]:
        values = [reading.celsius for reading in elements]
        yield Mean(key, context.window().start, len(values), round(sum(values) / len(values), 3))


def build(env: StreamExecutionEnvironment, properties: dict[str, str]) -> None:
    """Build the job: readings -> windows by sensor -> means. `properties` has aws.region or aws.endpoint."""
    region, endpoint = properties.get("aws.region", ""), properties.get("aws.endpoint")
    source = KinesisSource("readings", JsonLinesFormat(Reading), region=region, endpoint=endpoint, start="trim_horizon")
    clock = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=1))
    clock = clock.with_timestamp_assigner(lambda reading, _: reading.time).with_idleness(timedelta(seconds=5))
    readings = env.from_source(source, clock, "readings").uid("readings")
    windows = readings.key_by("sensor").window(TumblingEventTimeWindows.of(timedelta(seconds=10)))
    means = windows.process(Means(), output_type=Mean).name("means").uid("means")
    sink = KinesisStreamsSink.builder().set_stream_name("means").set_serialization_schema(JsonLinesEncoder())
    sink.set_partition_key_generator(lambda mean: mean.sensor).set_kinesis_client_properties(properties)
    means.sink_to(sink.build()).name("means to Kinesis").uid("means-sink")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--region", default="", help="region of the streams (default: that of the environment)")
    arguments.add_argument("--endpoint", default="", help="endpoint of another service with the same protocol")
    options, _ = arguments.parse_known_args()
    given = {"aws.region": options.region, "aws.endpoint": options.endpoint}
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    build(env, {name: value for name, value in given.items() if value})
    env.execute("kinesis readings")


if __name__ == "__main__":
    main()
