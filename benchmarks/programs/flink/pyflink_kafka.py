"""Count per key from topic to topic in PyFlink's DataStream API, thread mode, with Flink's Kafka connector.

    python pyflink_kafka.py --servers HOST:PORT --reads in --writes out --out DIR --jars DIR [--guarantee EXACTLY_ONCE] [--seconds 30]

`--seconds` makes it read for this time after all tasks run, also without input. Each count then has the highest `ts` of its key.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import orjson
from flink_settings import flink_configuration
from flink_times import log_into, run_times

arguments = argparse.ArgumentParser(description=__doc__)
for name in ("servers", "reads", "writes", "out", "jars"):
    arguments.add_argument(f"--{name}", required=True)
arguments.add_argument("--guarantee", default="EXACTLY_ONCE")
arguments.add_argument("--seconds", type=float, default=0.0)
options = arguments.parse_args()
OUT = Path(options.out).resolve()
log_into(OUT / "log")

from pyflink.common import SimpleStringSchema, Types, WatermarkStrategy  # noqa: E402
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment  # noqa: E402
from pyflink.datastream.connectors.base import DeliveryGuarantee  # noqa: E402
from pyflink.datastream.connectors.kafka import (  # noqa: E402
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from pyflink.datastream.state import ValueStateDescriptor  # noqa: E402

READING = Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE()])
START_S = 120
TRANSACTION_TIMEOUT_MS = "600000"
"""Flink's default, an hour, exceeds the maximum of a broker."""


def parse(line):
    reading = orjson.loads(line)
    return reading["sensor_id"], reading["ts"], reading["temp"]


class Counting(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        n = (self.count.value() or 0) + 1
        self.count.update(n)
        yield f'{{"sensor_id":"{value[0]}","n":{n}}}'


class CountingWithTime(KeyedProcessFunction):
    def open(self, runtime_context):
        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.state = runtime_context.get_state(ValueStateDescriptor("state", pair))

    def process_element(self, value, ctx):
        n, highest = self.state.value() or (0, 0)
        n, highest = n + 1, max(highest, value[1])
        self.state.update((n, highest))
        yield f'{{"sensor_id":"{value[0]}","n":{n},"ts":{highest}}}'


def await_running() -> None:
    """Wait until all tasks run, which means that no task reports its start for half a second.

    Raises:
        SystemExit: it takes more than two minutes.
    """
    deadline, seen = time.monotonic() + START_S, None
    while seen is None or run_times(OUT / "log")["begin"] != seen:
        if time.monotonic() > deadline:
            raise SystemExit(f"no task ran within {START_S} s")
        seen = run_times(OUT / "log")["begin"]
        time.sleep(0.5)


def main() -> None:
    configuration = flink_configuration(OUT)
    configuration.set_string("python.execution-mode", "thread")
    configuration.set_string("execution.attached", "false" if options.seconds else "true")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_python_executable(sys.executable)
    env.add_jars(*(path.as_uri() for path in sorted(Path(options.jars).glob("*.jar"))))
    source = KafkaSource.builder().set_bootstrap_servers(options.servers).set_topics(options.reads)
    source = source.set_group_id("pyflink").set_starting_offsets(KafkaOffsetsInitializer.earliest())
    source = source.set_value_only_deserializer(SimpleStringSchema())
    if not options.seconds:
        source = source.set_bounded(KafkaOffsetsInitializer.latest())
    messages = KafkaRecordSerializationSchema.builder().set_topic(options.writes)
    messages = messages.set_value_serialization_schema(SimpleStringSchema()).build()
    sink = KafkaSink.builder().set_bootstrap_servers(options.servers).set_record_serializer(messages)
    sink = sink.set_delivery_guarantee(DeliveryGuarantee[options.guarantee]).set_transactional_id_prefix("pyflink")
    sink = sink.set_property("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
    readings = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "readings")
    keyed = readings.map(parse, output_type=READING).key_by(lambda reading: reading[0], key_type=Types.STRING())
    counting = CountingWithTime() if options.seconds else Counting()
    keyed.process(counting, output_type=Types.STRING()).sink_to(sink.build())
    if options.seconds:
        client = env.execute_async("kafka")
        await_running()
        time.sleep(options.seconds)
        ended = time.time()
        client.cancel().result()
    else:
        env.execute("kafka")
        ended = time.time()
    result = run_times(OUT / "log")
    print("RESULT " + json.dumps({**result, "end": result["end"] or ended}), flush=True)


if __name__ == "__main__":
    main()
