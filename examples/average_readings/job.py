"""Compute the average temperature of each sensor in windows of one second.

python job.py                 # 600 readings
python job.py --count 6000    # more readings
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream import DataStream, ProcessWindowFunction
from penstock.datastream import StreamExecutionEnvironment as Environment
from penstock.datastream.window import FieldAggregate, TumblingEventTimeWindows


class Reading(NamedTuple):
    sensor: str
    time: int  # ms since the epoch
    temperature: float


class Average(NamedTuple):
    sensor: str
    end: int  # end of the window, ms since the epoch
    celsius: float
    readings: int


def to_celsius(reading: Reading) -> Reading:
    """Convert the temperature of a reading from Fahrenheit to Celsius."""
    return reading._replace(temperature=(reading.temperature - 32) * 5 / 9)


class AddWindow(ProcessWindowFunction):
    """Add the sensor and the end of the window to the average."""

    def process(self, key: str, context: Any, elements: Iterable[tuple[float, int]]) -> Iterator[Average]:
        for mean, count in elements:
            yield Average(key, context.window().end, round(mean, 2), count)


def build(readings: DataStream[Reading]) -> DataStream[Average]:
    """Build the job on a stream of readings in Fahrenheit."""
    celsius = readings.map(to_celsius).name("to Celsius").uid("to-celsius")
    seconds = celsius.key_by("sensor").window(TumblingEventTimeWindows.of(timedelta(seconds=1)))
    average = FieldAggregate.of(FieldAggregate.mean("temperature"), FieldAggregate.count())
    return seconds.aggregate(average, AddWindow()).name("averages").uid("averages")


def example_reading(index: int) -> Reading:
    """Return reading number `index`. Each of three sensors sends a reading every 10 ms, up to 50 ms late."""
    chance = random.Random(index)
    time = index // 3 * 10 - chance.randrange(50)
    return Reading(f"sensor-{index % 3}", max(0, time), 65 + 10 * (index % 3) + chance.gauss(0, 5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=600, help="number of readings (default: 600); 0 means without end")
    arguments, _ = parser.parse_known_args()  # the remaining arguments are Penstock's
    env = Environment.get_execution_environment()
    source = DataGeneratorSource(example_reading, arguments.count or None, 300 if not arguments.count else None)
    times = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(milliseconds=50)).with_timestamp_assigner("time")
    build(env.from_source(source, times, "readings").uid("readings")).print()
    env.execute("average-readings")


if __name__ == "__main__":
    main()
