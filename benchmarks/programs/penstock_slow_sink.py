"""A job whose sink is much slower than its source: records of one size, without end, into a sink with a fixed rate.

    python penstock_slow_sink.py --out DIR --bytes 8000 [--rate 100] [--runner pipelined] [--seconds 30]

The sink writes the number of its records to `DIR/taken-*`. RESULT at the end has

- this number,
- the number of records that the sources have read and the sink has not taken, at the last epoch,
- the number of complete checkpoints,
- the time of the longest barrier,
- the number of restarts.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.sink import Sink, SinkWriter, WriterContext
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream.functions import MapFunction
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

STARTUP_S = 120
FASTEST = 10_000
"""Records per second. A sink with a higher rate does not wait at all."""


class Records:
    """A function from an index to a unique bytes value of the given size."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, index: int) -> bytes:
        return index.to_bytes(8, "little").ljust(self.size, b".")


class SlowIn(MapFunction):
    """A function that is slow in one subtask, so that its barriers come much later than those of the others."""

    def __init__(self, subtask: int, seconds: float) -> None:
        self.subtask = subtask
        self.seconds = seconds

    def open(self, runtime_context: Any) -> None:
        self.is_slow = runtime_context.get_index_of_this_subtask() == self.subtask

    def map(self, value: bytes) -> bytes:
        if self.is_slow:
            time.sleep(self.seconds)
        return value


class SlowSink(Sink):
    """A sink that takes `rate` records per second in each subtask."""

    def __init__(self, folder: str, rate: float) -> None:
        self.folder = folder
        self.rate = rate

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return SlowWriter(Path(self.folder, f"taken-{context.attempt}-{context.subtask}"), self.rate)


class SlowWriter(SinkWriter):
    def __init__(self, path: Path, rate: float) -> None:
        self._path = path
        self._rate = rate
        self._taken = 0

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        if self._rate <= FASTEST:
            for _ in values:
                time.sleep(1 / self._rate)
                self._count(1)
        else:
            self._count(len(values))

    def _count(self, records: int) -> None:
        self._taken += records
        self._path.write_text(str(self._taken))


def taken(out: Path) -> int:
    return sum(int(path.read_text() or 0) for path in out.glob("taken-*"))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", required=True)
    arguments.add_argument("--bytes", type=int, default=8000)
    arguments.add_argument("--rate", type=float, default=100, help="records per second of all sinks together")
    arguments.add_argument("--slow-sender", type=float, default=0, help="seconds that subtask 1 takes to send a record")
    arguments.add_argument("--runner", default="pipelined")
    arguments.add_argument("--slots", type=int, default=2)
    arguments.add_argument("--seconds", type=float, default=30)
    options = arguments.parse_args()
    out = Path(options.out).resolve()
    configuration = Configuration()
    configuration.set_string("penstock.runner", options.runner)
    configuration.set_string("execution.checkpointing.dir", (out / "checkpoints").as_uri())
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(options.slots)
    env.enable_checkpointing(timedelta(seconds=5))
    source = DataGeneratorSource(Records(options.bytes))
    records = env.from_source(source, WatermarkStrategy.no_watermarks(), "records")
    if options.slow_sender:
        records = records.map(SlowIn(1, options.slow_sender))
    records.rebalance().sink_to(SlowSink(str(out), options.rate / options.slots))
    executor = EmbeddedExecutor()
    with executing_on(executor):
        client: Any = env.execute_async("slow-sink")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        found = watch(executor, client, out, options.seconds)
    finally:
        cancelled = time.time()
        client.cancel().result(120)
        found["cancel_s"] = time.time() - cancelled
        executor.stop()
    print("RESULT " + json.dumps(found), flush=True)
    os._exit(0)


def watch(executor: EmbeddedExecutor, client: Any, out: Path, seconds: float) -> dict[str, Any]:
    """Let the job run, and return its figures."""
    master = executor.session.dispatcher.jobs()[0]
    waits_until = time.time() + STARTUP_S
    while not taken(out):
        if client.get_job_status().result(10).name in ("FAILED", "FINISHED", "CANCELED") or time.time() > waits_until:
            raise SystemExit("the job ended, or hung, before its first record")
        time.sleep(0.1)
    begin = barrier_at = time.time()
    epochs, longest = master.metrics.epochs, 0.0
    while time.time() < begin + seconds:
        time.sleep(0.05)
        if master.metrics.epochs != epochs:
            epochs, barrier_at = master.metrics.epochs, time.time()
        longest = max(longest, time.time() - barrier_at)
    return {
        "begin": begin,
        "end": time.time(),
        "taken": taken(out),
        "read": master.metrics.records_total,
        "epochs": epochs,
        "longest_epoch_s": round(longest, 2),
        "restarts": master.history.restarts,
    }


if __name__ == "__main__":
    main()
