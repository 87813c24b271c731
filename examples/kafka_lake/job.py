"""Write readings from Kafka to an Iceberg table, one row for each sensor and minute, exactly once.

A reading is `{"sensor": "s1", "time": 1700000000000, "celsius": 21.5}`. A checkpoint is a commit of the table. A reader
therefore sees each minute once with all of its readings, also if the job restarts, is rescaled or is upgraded.
The README has the commands.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import DataStream
from penstock.datastream.connectors.iceberg import IcebergSink
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from penstock.datastream.formats.json import JsonLinesFormat
from penstock.datastream.functions import ProcessWindowFunction
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.window import FieldAggregate, TumblingEventTimeWindows

TABLE = "weather.minutes"
REJECTED = OutputTag("no-readings")
FIELDS = {"sensor": str, "minute": datetime, "mean": float, "highest": float, "readings": int}


class Reading(NamedTuple):
    sensor: str
    time: int
    """Event time, ms since the epoch."""
    celsius: float


class Minute(ProcessWindowFunction):
    """A function that makes the row of a sensor's minute from the aggregate of its readings."""

    def process(self, key: str, context: Any, elements: Any) -> Iterator[dict[str, Any]]:
        for mean, highest, count in elements:
            start = datetime.fromtimestamp(context.window().start / 1000, UTC)
            yield {"sensor": key, "minute": start, "mean": mean, "highest": highest, "readings": count}


def catalog_of(folder: str, uri_file: str) -> dict[str, str]:
    """Return PyIceberg's properties: a catalog in a database whose URI is in a file, or one in SQLite in the folder."""
    if uri_file:
        return {"name": "lake", "type": "sql", "uri.file": uri_file, "warehouse": folder}
    path = Path(folder).resolve()
    path.mkdir(parents=True, exist_ok=True)
    return {"name": "lake", "type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": path.as_uri()}


def minutes_of(readings: DataStream[Reading]) -> DataStream[dict[str, Any]]:
    """Build the part of the job between source and sink: readings -> by sensor -> minutes."""
    by_minute = readings.key_by("sensor").window(TumblingEventTimeWindows.of(timedelta(minutes=1)))
    totals = FieldAggregate.of(FieldAggregate.mean("celsius"), FieldAggregate.max("celsius"), FieldAggregate.count())
    return by_minute.aggregate(totals, Minute()).uid("minutes")


def build(env: StreamExecutionEnvironment, servers: str, catalog: dict[str, str]) -> None:
    """Build the job: the topic -> minutes -> the table."""
    source = KafkaSource.builder().set_bootstrap_servers(servers).set_topics("readings").set_group_id("kafka-lake")
    source = source.set_starting_offsets(KafkaOffsetsInitializer.earliest()).set_on_error("side-output", REJECTED)
    source = source.set_value_only_deserializer(JsonLinesFormat(Reading))
    by_time = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=5)).with_timestamp_assigner("time")
    readings = env.from_source(source.build(), by_time.with_idleness(timedelta(seconds=5)), "readings").uid("readings")
    readings.get_side_output(REJECTED).print().uid("rejected")  # with partition and offset, into the log
    minutes_of(readings).sink_to(IcebergSink(catalog, TABLE, FIELDS, create=True)).name("the lake").uid("lake")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    known = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")
    arguments.add_argument("--servers", default=known, help="brokers as host:port, separated by commas")
    arguments.add_argument("--lake", default="build/kafka-lake", help="folder of the tables, as a path or URL")
    arguments.add_argument("--catalog-uri-file", default="", help="file with the URI of the catalog's database")
    options, _ = arguments.parse_known_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(5000)
    build(env, options.servers, catalog_of(options.lake, options.catalog_uri_file))
    env.execute("kafka lake")


if __name__ == "__main__":
    main()
