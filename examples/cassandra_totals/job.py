"""Add up the rain of each station and day, from files to a table of Cassandra.

A line of a file is `{"station": "north", "day": "2013-07-01", "millimetres": 3}`. The job also reads files that arrive later.
Rows wait in the checkpoint (the write-ahead log) and become visible when it is complete. A row that is sent twice never
replaces a newer one. The table therefore always has the totals of the readings up to some checkpoint, also after a failure.

The README has the commands.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.connectors.cassandra import CassandraTableSink, ClusterBuilder
from penstock.datastream.connectors.file_system import FileSource
from penstock.datastream.formats.json import JsonLinesFormat
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

TABLE = "weather.rain"


class Reading(NamedTuple):
    station: str
    day: str
    millimetres: int


class Total(NamedTuple):
    station: str
    day: str
    readings: int
    millimetres: int


class Totals(KeyedProcessFunction):
    """A function that adds up the readings of a station and day, and emits the total after each reading."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Total))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Total]:
        before = self.total.value() or Total(value.station, value.day, 0, 0)
        total = Total(value.station, value.day, before.readings + 1, before.millimetres + value.millimetres)
        self.total.update(total)
        yield total


def build(env: StreamExecutionEnvironment, readings: str, cluster: ClusterBuilder) -> None:
    """Build the job: readings -> by station and day -> rows."""
    source = FileSource.for_record_stream_format(JsonLinesFormat(Reading), readings)
    read = env.from_source(
        source.monitor_continuously(timedelta(seconds=1)).build(), WatermarkStrategy.no_watermarks(), "readings"
    ).uid("readings")
    totals = read.key_by(lambda reading: f"{reading.station} {reading.day}").process(Totals()).uid("totals")
    sink = CassandraTableSink(cluster, TABLE, Total._fields, write_ahead=True)
    totals.sink_to(sink).name("rain table").uid("rain-table")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--readings", default="readings", help="folder of the files, as a path or URL")
    arguments.add_argument("--host", default=os.environ.get("CASSANDRA_HOST", "localhost"))
    arguments.add_argument("--port", type=int, default=int(os.environ.get("CASSANDRA_PORT", "9042")))
    arguments.add_argument("--user", default="", help="of Cassandra")
    arguments.add_argument("--password-file", default="", help="file with the user's password")
    options, _ = arguments.parse_known_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    build(env, options.readings, ClusterBuilder(options.host, options.port, options.user, options.password_file))
    env.execute("cassandra totals")


if __name__ == "__main__":
    main()
