"""Compute daily weather at three airports, and alert if the temperature rises for six hours.

The readings are real (`data/`, one file per station). They come in Fahrenheit, and the results are in Celsius. Event time
is the hour of the reading. Each file has a separate watermark, so no station's state waits for another station.

The README has the commands.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.formats.encode import JsonLinesEncoder
from penstock.datastream.connectors.file_system import FileSink, FileSource
from penstock.datastream.formats.csv import CsvDialect, CsvFormat
from penstock.datastream.formats.parquet import ParquetBulkWriters
from penstock.datastream.functions import AggregateFunction, KeyedProcessFunction, ProcessWindowFunction
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows

RISING_HOURS = 6
ALERTS = OutputTag("alerts")


class Reading(NamedTuple):
    station: str
    time: int
    """Event time, ms since the epoch."""
    celsius: float


class DailyStatistics(NamedTuple):
    station: str
    day: str
    mean: float
    minimum: float
    maximum: float
    readings: int


class Alert(NamedTuple):
    station: str
    time: str
    celsius: float
    hours: int


def to_reading(row: Any) -> Iterator[Reading]:
    """Convert a CSV row to a reading in Celsius. Skip hours without a measurement."""
    if row["temp"] is not None:
        moment = datetime.fromisoformat(row["time_hour"])
        yield Reading(row["origin"], int(moment.timestamp() * 1000), (row["temp"] - 32) * 5 / 9)


class Statistics(AggregateFunction):
    """The sum, count, minimum and maximum of a day, computed one reading at a time."""

    def create_accumulator(self) -> tuple[float, int, float, float]:
        return 0.0, 0, float("inf"), float("-inf")

    def add(self, value: Reading, accumulator: tuple[float, int, float, float]) -> tuple[float, int, float, float]:
        total, count, low, high = accumulator
        return total + value.celsius, count + 1, min(low, value.celsius), max(high, value.celsius)

    def get_result(self, accumulator: tuple[float, int, float, float]) -> tuple[float, int, float, float]:
        return accumulator

    def merge(
        self, acc_a: tuple[float, int, float, float], acc_b: tuple[float, int, float, float]
    ) -> tuple[float, int, float, float]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1], min(acc_a[2], acc_b[2]), max(acc_a[3], acc_b[3])


class WithDay(ProcessWindowFunction):
    """A function that adds station and day to a day's statistics."""

    def process(self, key: str, context: Any, elements: Any) -> Iterator[DailyStatistics]:
        for total, count, low, high in elements:
            day = datetime.fromtimestamp(context.window().start / 1000, UTC).date().isoformat()
            yield DailyStatistics(key, day, total / count, low, high, count)


class RisingTemperature(KeyedProcessFunction):
    """An alert if a station's temperature rises with every reading for six hours.

    The first rise sets a timer for five hours later, and a reading that is not higher deletes it. A late watermark
    makes the timer fire late. A reading after that time therefore emits the alert first, so that the result depends only on
    the readings.
    """

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", float))
        self.timer = runtime_context.get_state(ValueStateDescriptor("timer", int))

    def process_element(self, value: Reading, ctx: Any) -> Iterator[Any]:
        last, timer = self.last.value(), self.timer.value()
        if timer is not None and value.time > timer:
            ctx.timer_service().delete_event_time_timer(timer)
            yield from self.alert(timer, ctx)
            timer = None
        self.last.update(value.celsius)
        if last is None or value.celsius <= last:
            if timer is not None:
                ctx.timer_service().delete_event_time_timer(timer)
                self.timer.clear()
        elif timer is None:
            timer = value.time + (RISING_HOURS - 1) * 3_600_000
            ctx.timer_service().register_event_time_timer(timer)
            self.timer.update(timer)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield from self.alert(timestamp, ctx)

    def alert(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        self.timer.clear()
        moment = datetime.fromtimestamp(timestamp / 1000, UTC).isoformat()
        yield ALERTS, Alert(ctx.get_current_key(), moment, self.last.value(), RISING_HOURS)


def build(env: StreamExecutionEnvironment, data: str, output: str) -> None:
    """Build the job: readings -> Celsius -> by station -> (a) days, (b) alerts."""
    columns = {"origin": str, "temp": float | None, "time_hour": str}
    csv = CsvFormat(columns, CsvDialect(header="names", null_value="NA"), record="row")
    source = FileSource.for_record_stream_format(csv, f"{data}/*.csv.gz").build()
    by_hour = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(event_time)
    readings = (
        env.from_source(source, by_hour, "readings")
        .uid("readings")
        .flat_map(to_reading)
        .uid("to-celsius")
        .key_by("station")
    )
    days = (
        readings.window(TumblingEventTimeWindows.of(timedelta(days=1)))
        .aggregate(Statistics(), WithDay())
        .name("daily statistics")
        .uid("days")
    )
    rising = readings.process(RisingTemperature()).name("rising temperature").uid("rising")
    alerts = rising.get_side_output(ALERTS)
    days.sink_to(
        FileSink.for_bulk_format(f"{output}/days", ParquetBulkWriters.for_row_type(DailyStatistics)).build()
    ).name("days to Parquet").uid("days-sink")
    alerts.sink_to(FileSink.for_row_format(f"{output}/alerts", JsonLinesEncoder()).build()).name(
        "alerts to JSON lines"
    ).uid("alerts-sink")
    alerts.print("alert").name("print").uid("print")


def event_time(row: Any, record_timestamp: int | None) -> int:
    """Convert ISO 8601 to ms since the epoch."""
    return int(datetime.fromisoformat(row["time_hour"]).timestamp() * 1000)


def main() -> None:
    here = Path(__file__).parent
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", default=str(here / "data"), help="folder or URL of the readings")
    arguments.add_argument("--output", default="build/airport-weather", help="folder or URL of the results")
    options, _ = arguments.parse_known_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env, options.data, options.output)
    env.execute("airport weather")


if __name__ == "__main__":
    main()
