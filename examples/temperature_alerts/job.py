"""Alert when the temperature of a sensor rises for a whole second, and report frost in a side output.

python job.py
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream import DataStream, KeyedProcessFunction, OutputTag
from penstock.datastream import StreamExecutionEnvironment as Environment
from penstock.datastream.state import value_state

RISING_MS = 1_000


class Reading(NamedTuple):
    sensor: str
    time: int  # ms since the epoch
    celsius: float


class Alert(NamedTuple):
    sensor: str
    time: int  # ms since the epoch
    message: str


FROST = OutputTag("frost", Reading)


def find_frost(reading: Reading, ctx: Any) -> Iterator[Any]:
    """Return the reading. Send a copy to the side output if it is below 0 degrees."""
    if reading.celsius < 0:
        yield FROST, reading
    yield reading


class Rising(KeyedProcessFunction):
    """Alert if the temperature rises with every reading of a second.

    The first higher reading sets a timer, and a reading that is not higher deletes it. Timers wait for the watermark. A reading
    after the time of the timer therefore emits the alert itself, so the alerts depend only on the readings.
    """

    last = value_state(float)
    timer = value_state(int)

    def process_element(self, value: Reading, ctx: Any) -> Iterator[Alert]:
        timers = ctx.timer_service()
        if self.timer is not None and value.time > self.timer:
            timers.delete_event_time_timer(self.timer)
            yield self.alert(self.timer, ctx)
        is_higher = self.last is not None and value.celsius > self.last
        self.last = value.celsius
        if is_higher and self.timer is None:
            self.timer = value.time + RISING_MS
            timers.register_event_time_timer(self.timer)
        elif not is_higher and self.timer is not None:
            timers.delete_event_time_timer(self.timer)
            self.timer = None

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Alert]:
        yield self.alert(timestamp, ctx)

    def alert(self, time: int, ctx: Any) -> Alert:
        self.timer = None
        return Alert(ctx.get_current_key(), time, f"higher with each reading for {RISING_MS} ms")


def build(readings: DataStream[Reading]) -> dict[str, DataStream[Any]]:
    """Build the job on a stream of readings. Return its outputs by name."""
    checked = readings.process(find_frost, output_type=Reading).name("find frost").uid("find-frost")
    rising = checked.key_by("sensor").process(Rising(), output_type=Alert).name("rising").uid("rising")
    return {"alert": rising, "frost": checked.get_side_output(FROST)}


def example_reading(index: int) -> Reading:
    """Return reading number `index`. Two sensors send a reading every 200 ms. Only the waves of the first are slow."""
    number, step = index % 2, index // 2
    celsius = 8 + 9 * math.sin(step / 5) if number == 0 else 3 + 2 * math.sin(step * 1.5)
    return Reading(f"sensor-{number}", step * 200, round(celsius, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="number of readings (default: 100); 0 means without end")
    arguments, _ = parser.parse_known_args()  # the remaining arguments are Penstock's
    env = Environment.get_execution_environment()
    source = DataGeneratorSource(example_reading, arguments.count or None, None if arguments.count else 10, splits=1)
    times = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(0)).with_timestamp_assigner("time")
    for name, stream in build(env.from_source(source, times, "readings").uid("readings")).items():
        stream.print(name).name(f"print {name}").uid(f"print-{name}")
    env.execute("temperature-alerts")


if __name__ == "__main__":
    main()
