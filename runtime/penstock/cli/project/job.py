"""Temperatures of sensors: new maxima (keyed state), means of each minute (a window), invalid readings (a side output)."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream import DataStream, KeyedProcessFunction, OutputTag, ProcessWindowFunction
from penstock.datastream import StreamExecutionEnvironment as Environment
from penstock.datastream.state import value_state
from penstock.datastream.window import FieldAggregate, TimeWindow, TumblingEventTimeWindows


@dataclass
class Reading:
    sensor: str
    celsius: float
    time: int  # ms since the epoch


INVALID = OutputTag("invalid", Reading)


def validate(value: Reading, ctx: Any) -> Iterator[Any]:
    """Send readings that no sensor can measure to the side output."""
    if -90 <= value.celsius <= 60:
        yield value
    else:
        yield INVALID, value


class NewMaximum(KeyedProcessFunction):
    """Emit each reading that is higher than all earlier readings of its sensor."""

    highest = value_state(float)

    def process_element(self, value: Reading, ctx: Any) -> Iterator[Reading]:
        if self.highest is None or value.celsius > self.highest:
            self.highest = value.celsius
            yield value


class AddSensor(ProcessWindowFunction):
    """Add the sensor and the end of the window (ms since the epoch) to the mean."""

    def process(self, key: str, context: Any, elements: Iterable[float]) -> Iterator[tuple[str, int, float]]:
        window: TimeWindow = context.window()
        for mean in elements:
            yield key, window.end, round(mean, 1)


def build(readings: DataStream[Reading]) -> dict[str, DataStream[Any]]:
    """Build the job on a stream of readings. Return its outputs by name."""
    valid = readings.process(validate, output_type=Reading).name("validate").uid("validate")
    by_sensor = valid.key_by(lambda reading: reading.sensor)
    maxima = by_sensor.process(NewMaximum()).name("maxima").uid("maxima")
    means = (
        by_sensor.window(TumblingEventTimeWindows.of(timedelta(minutes=1)))
        .aggregate(FieldAggregate.of(FieldAggregate.mean("celsius")), AddSensor())
        .name("means")
        .uid("means")
    )
    return {"maximum": maxima, "mean": means, "invalid": valid.get_side_output(INVALID)}


def example_reading(index: int) -> Reading:
    """Return reading number `index`: four sensors, one reading per second. One reading in 50 is invalid."""
    celsius = 999.0 if index % 50 == 49 else 15.0 + index * 7 % 100 / 10
    return Reading(f"sensor-{index % 4}", celsius, index * 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, help="number of readings (default: the job never ends)")
    arguments, _ = parser.parse_known_args()  # the remaining arguments are Penstock's
    env = Environment.get_execution_environment()
    env.enable_checkpointing(5000)
    source = DataGeneratorSource(example_reading, arguments.count, records_per_second=100, splits=1)
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda reading, _: reading.time)
    readings = env.from_source(source, times, "readings").uid("readings")
    for name, stream in build(readings).items():
        stream.print(name).name(f"print {name}").uid(f"print-{name}")
    env.execute("my-job")


if __name__ == "__main__":
    main()
