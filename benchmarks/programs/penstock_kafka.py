"""Count per key from topic to topic, exactly once, with a checkpoint every second.

    python penstock_kafka.py --servers HOST:PORT --reads in --writes out --out DIR [--guarantee EXACTLY_ONCE] [--seconds 30]

`--seconds` makes it read for this time from its first reading on, also without input. Each count then has the highest `ts` of
its key.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from penstock.common.configuration import Configuration
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.formats.encode import JsonLinesEncoder
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.window import FieldAggregate

START_S = 120


class Reading(NamedTuple):
    sensor_id: str
    ts: int
    temp: float


class NotedJsonLines(JsonLinesFormat):
    """A JSON format whose readers record their first decoding, which is the job's first work.

    The program makes a decoder, too.
    """

    def __init__(self, folder: str) -> None:
        self.folder = ""
        super().__init__(Reading)
        self.folder = folder

    def decoder(self, header: bytes) -> Any:
        decode, folders = super().decoder(header), [self.folder]

        def noting(data: bytes) -> Any:
            if folders:
                Path(folders.pop(), f"begin-{os.getpid()}-{time.time_ns()}").touch()
            return decode(data)

        return noting if self.folder else decode


def await_begin(out: Path) -> None:
    """Wait until a reader has decoded its first reading.

    Raises:
        SystemExit: it takes more than two minutes.
    """
    deadline = time.monotonic() + START_S
    while not any(out.glob("begin-*")):
        if time.monotonic() > deadline:
            raise SystemExit(f"no reading was read within {START_S} s")
        time.sleep(0.05)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    for name in ("servers", "reads", "writes", "out"):
        arguments.add_argument(f"--{name}", required=True)
    arguments.add_argument("--guarantee", default="EXACTLY_ONCE")
    arguments.add_argument("--seconds", type=float, default=0.0)
    arguments.add_argument("--setting", action="append", default=[], help="key=value")
    options = arguments.parse_args()
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.dir", Path(options.out, "checkpoints").resolve().as_uri())
    configuration.set_string("restart-strategy.type", "none")
    configuration.set_string("penstock.epoch.target", "1s")
    for setting in options.setting:
        configuration.set_string(*setting.split("=", 1))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    env.enable_checkpointing(1000)
    source = KafkaSource.builder().set_bootstrap_servers(options.servers).set_topics(options.reads)
    source = source.set_record_timestamps(used=False).set_value_only_deserializer(NotedJsonLines(options.out))
    if not options.seconds:
        source = source.set_bounded(KafkaOffsetsInitializer.latest())
    counted = [("n", FieldAggregate.count())] + ([("ts", FieldAggregate.max("ts"))] if options.seconds else [])
    topic = KafkaRecordSerializationSchema.builder().set_topic(options.writes)
    encoder = JsonLinesEncoder(["sensor_id", *(name for name, _ in counted)])
    messages = topic.set_value_serialization_schema(encoder).build()
    sink = KafkaSink.builder().set_bootstrap_servers(options.servers).set_record_serializer(messages)
    sink = sink.set_delivery_guarantee(DeliveryGuarantee[options.guarantee]).set_transactional_id_prefix("bench")
    readings = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "readings")
    readings.key_by("sensor_id").aggregate(FieldAggregate.of(*(kind for _, kind in counted))).sink_to(sink.build())
    if options.seconds:
        client = env.execute_async("kafka")
        await_begin(Path(options.out))
        time.sleep(options.seconds)
        client.cancel().result(60)
    else:
        env.execute("kafka")
    end = time.time()
    begin = min(int(path.name.rpartition("-")[2]) for path in Path(options.out).glob("begin-*")) / 1e9
    print("RESULT " + json.dumps({"begin": begin, "end": end}), flush=True)


if __name__ == "__main__":
    main()
