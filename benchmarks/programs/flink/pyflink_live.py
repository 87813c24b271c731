"""The job of `penstock_live` in PyFlink, thread mode: paced records, counted by key. Its last function records their latency.

    python pyflink_live.py --out DIR [--rate 1000] [--keys 1000] [--warm-up 10] [--seconds 20]

Two slots, state on the heap, a checkpoint every ten seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from array import array
from pathlib import Path

from flink_settings import flink_configuration
from flink_times import log_into

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("--out", required=True)
arguments.add_argument("--rate", type=float, default=1000)
arguments.add_argument("--keys", type=int, default=1000)
arguments.add_argument("--warm-up", type=float, default=10)
arguments.add_argument("--seconds", type=float, default=20)
options = arguments.parse_args()
OUT = Path(options.out).resolve()
RATE, KEYS = options.rate, options.keys
SLOTS = 2  # in thread mode a function cannot get the number of subtasks
log_into(OUT / "log")

from pyflink.common import Types, WatermarkStrategy  # noqa: E402
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment  # noqa: E402
from pyflink.datastream.connectors.base import Sink  # noqa: E402
from pyflink.datastream.connectors.number_seq import NumberSequenceSource  # noqa: E402
from pyflink.datastream.functions import MapFunction  # noqa: E402
from pyflink.datastream.state import ValueStateDescriptor  # noqa: E402
from pyflink.java_gateway import get_gateway  # noqa: E402


class Paced(MapFunction):
    """A function that delays each index until it is due, with equal shares of the rate for the subtasks."""

    def open(self, runtime_context):
        self.origin = time.time()
        self.count = 0

    def map(self, value):
        due = self.origin + self.count * SLOTS / RATE
        self.count += 1
        wait = due - time.time()
        if wait > 0:
            time.sleep(wait)
        return value % KEYS, due


class Counting(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value[1], count


class Noting(MapFunction):
    def open(self, runtime_context):
        self.file = open(f"{OUT}/latency-{os.getpid()}-{time.time_ns()}", "ab", buffering=0)

    def map(self, value):
        self.file.write(array("d", (time.time(), value[0])).tobytes())
        return 0


def main() -> None:
    configuration = flink_configuration(OUT)
    for key, value in {
        "python.execution-mode": "thread",
        "execution.checkpointing.interval": "10s",
        "execution.attached": "false",
    }.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_python_executable(sys.executable)
    pair = Types.TUPLE([Types.LONG(), Types.DOUBLE()])
    numbers = env.from_source(NumberSequenceSource(0, 1 << 40), WatermarkStrategy.no_watermarks(), "numbers")
    paced = numbers.map(Paced(), pair)
    counted = paced.key_by(lambda value: value[0], Types.LONG()).process(
        Counting(), Types.TUPLE([Types.DOUBLE(), Types.LONG()])
    )
    nowhere = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()
    counted.map(Noting(), Types.LONG()).sink_to(Sink(nowhere))
    client = env.execute_async("live")
    while not any(path.stat().st_size for path in OUT.glob("latency-*")):
        time.sleep(0.05)
    time.sleep(options.warm_up)
    begin = time.time()
    time.sleep(options.seconds)
    print("RESULT " + json.dumps({"begin": begin, "end": time.time()}), flush=True)
    client.cancel().result()


if __name__ == "__main__":
    main()
