"""Write daily weather at three airports to a table of Delta Lake or Iceberg.

The readings are those of the example `airport_weather`, which must be in the folder beside this one. A row has a day's mean,
its extremes and its number of readings. The table is partitioned by station. A checkpoint is a commit of the table. A reader
therefore sees each day once, however often the job restarts.

The README has the commands.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.connectors.delta import DeltaSink
from penstock.datastream.connectors.file_system import FileSource
from penstock.datastream.connectors.iceberg import IcebergSink
from penstock.datastream.formats.csv import CsvDialect, CsvFormat
from penstock.datastream.functions import ProcessWindowFunction
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows

READINGS = Path(__file__).resolve().parent.parent / "airport_weather" / "data"
FIELDS = {"station": str, "day": date, "mean": float, "low": float, "high": float, "readings": int}


class Reading(NamedTuple):
    station: str
    time: int
    """Event time, ms since the epoch."""
    celsius: float


def to_reading(row: Any) -> Iterator[Reading]:
    """Convert a CSV row to a reading in Celsius. Skip hours without a measurement."""
    if row["temp"] is not None:
        yield Reading(row["origin"], event_time(row), (row["temp"] - 32) * 5 / 9)


def event_time(row: Any) -> int:
    return int(datetime.fromisoformat(row["time_hour"]).timestamp() * 1000)


class Day(ProcessWindowFunction):
    """A function that makes the row of a station's day."""

    def process(self, key: str, context: Any, elements: Any) -> Iterator[dict[str, Any]]:
        values = [reading.celsius for reading in elements]
        day = datetime.fromtimestamp(context.window().start / 1000, UTC).date()
        mean, count = sum(values) / len(values), len(values)
        yield {"station": key, "day": day, "mean": mean, "low": min(values), "high": max(values), "readings": count}


def sink_of(kind: str, folder: str) -> DeltaSink | IcebergSink:
    if kind == "delta":
        return DeltaSink(f"{folder}/days", FIELDS, partition_by=["station"], create=True)
    path = Path(folder).resolve()
    path.mkdir(parents=True, exist_ok=True)
    catalog = {"name": "lake", "type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": f"{path.as_uri()}"}
    return IcebergSink(catalog, "weather.days", FIELDS, partition_by=["station"], create=True)


def build(env: StreamExecutionEnvironment, data: str, kind: str, folder: str) -> None:
    """Build the job: readings -> by station -> days -> the table."""
    columns = {"origin": str, "temp": float | None, "time_hour": str}
    csv = CsvFormat(columns, CsvDialect(header="names", null_value="NA"), record="row")
    source = FileSource.for_record_stream_format(csv, f"{data}/*.csv.gz").build()
    by_hour = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(event_time)
    readings = env.from_source(source, by_hour, "readings").uid("readings").flat_map(to_reading).uid("to-celsius")
    by_day = readings.key_by("station").window(TumblingEventTimeWindows.of(timedelta(days=1)))
    by_day.process(Day()).uid("days").sink_to(sink_of(kind, folder)).name("the lake").uid("lake")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", default=str(READINGS), help="folder of the readings, as a path or URL")
    arguments.add_argument("--format", choices=["delta", "iceberg"], default="delta")
    arguments.add_argument("--lake", default="build/weather-lake", help="folder of the table; a URL only for Delta")
    options, _ = arguments.parse_known_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    build(env, options.data, options.format, options.lake)
    env.execute("weather lake")


if __name__ == "__main__":
    main()
