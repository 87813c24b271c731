"""A job without an end: paced records, counted by key. The sink records their latency. Actions change the job while it runs.

    python penstock_live.py --out DIR [--rate 1000] [--keys 1000] [--runner batched] [--seconds 30] [--action rescale:4]

At a rate of 0 the job watches an empty folder. Actions happen after `--warm-up` seconds: `none`, `rescale:N`, `kill` (SIGKILL of an
executor). The sink appends a pair of doubles per record to `DIR/latency-*`: the moment it arrived and the moment it was
due. A job with an id continues from its last checkpoint. SIGTERM cancels the job.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from array import array
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.sink import Sink, SinkWriter, WriterContext
from penstock.connectors.core.source import Source
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSource
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.embedded import EmbeddedExecutor
from penstock.jobmanager.process.session.session import SubmitOptions


class Paced:
    """A function from an index to the key and the moment at which the record is due.

    A subtask's schedule is the earliest that its records fit: the first ones may be late, and none is early.
    """

    def __init__(self, rate: float, keys: int) -> None:
        self.rate = rate
        self.keys = keys
        self.origin: float | None = None

    def __call__(self, index: int) -> tuple[int, float]:
        due = index / self.rate
        origin = time.time() - due
        if self.origin is None or origin < self.origin:
            self.origin = origin
        return index % self.keys, self.origin + due


class Counting(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: tuple[int, float], ctx: Any) -> Iterator[tuple[float, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value[1], count


class LatencySink(Sink):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return LatencyWriter(Path(self.folder, f"latency-{context.attempt}-{context.subtask}-{os.getpid()}"))


class LatencyWriter(SinkWriter):
    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        now = time.time()
        pairs = array("d")
        for value in values:
            pairs.extend((now, value[0]))
        self._file.write(pairs.tobytes())

    def close(self) -> None:
        self._file.close()


def executors() -> list[int]:
    """Return the process ids of this job's executors."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry))
    tree = [os.getpid()]
    for pid in tree:
        tree += children.get(pid, ())
    return [pid for pid in tree if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def source(options: argparse.Namespace, out: Path) -> Source:
    if options.rate:
        return DataGeneratorSource(Paced(options.rate, options.keys), records_per_second=options.rate)
    (out / "nothing").mkdir()
    files = FileSource.for_record_stream_format(
        JsonLinesFormat({"key": int, "due": float}, record="tuple"), (out / "nothing").as_uri()
    )
    return files.monitor_continuously(timedelta(seconds=10)).build()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", required=True)
    arguments.add_argument("--rate", type=float, default=1000)
    arguments.add_argument("--keys", type=int, default=1000)
    arguments.add_argument("--runner", default="auto")
    arguments.add_argument("--slots", type=int, default=2)
    arguments.add_argument("--worker-slots", type=int, default=0, help="slots of each worker; 0 means the default")
    arguments.add_argument("--local-cluster", default="processes")
    arguments.add_argument("--warm-up", type=float, default=10)
    arguments.add_argument("--seconds", type=float, default=20)
    arguments.add_argument("--checkpoint-seconds", type=float, default=1)
    arguments.add_argument("--settled", type=int, default=0, help="1: the measurement starts after the warm-up")
    arguments.add_argument("--action", default="none")
    arguments.add_argument("--job-id", default="")
    options = arguments.parse_args()
    out = Path(options.out).resolve()
    configuration = Configuration()
    configuration.set_string("penstock.runner", options.runner)
    configuration.set_string("execution.checkpointing.dir", (out / "checkpoints").as_uri())
    configuration.set_string("penstock.local-cluster", options.local_cluster)
    if options.worker_slots:
        configuration.set_string("taskmanager.numberOfTaskSlots", str(options.worker_slots))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(options.slots)
    env.enable_checkpointing(timedelta(seconds=options.checkpoint_seconds))
    env.from_source(source(options, out), WatermarkStrategy.no_watermarks(), "paced").key_by(
        lambda value: value[0]
    ).process(Counting()).sink_to(LatencySink(str(out)))
    executor = EmbeddedExecutor(SubmitOptions(job_id=options.job_id))
    with executing_on(executor):
        client: Any = env.execute_async("live")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        moments = act(client, out, options)
    finally:
        client.cancel().result(60)
        executor.stop()
    print("RESULT " + json.dumps(moments), flush=True)


def act(client: Any, out: Path, options: argparse.Namespace) -> dict[str, float]:
    """Do the requested action. Return the moments (s since the epoch) of the job's start, the action, its response and the end."""
    while not list(out.glob("latency-*")):
        if options.rate == 0 and client.get_job_status().result(10).name == "RUNNING":
            break
        if client.get_job_status().result(10).name in ("FAILED", "FINISHED", "CANCELED"):
            raise SystemExit("the job ended before its first record")
        time.sleep(0.05)
    begin = time.time()
    time.sleep(options.warm_up)
    acted = time.time()
    if options.action.startswith("rescale:"):
        client.rescale(int(options.action.partition(":")[2])).result(120)
    elif options.action == "kill":
        os.kill(executors()[0], signal.SIGKILL)
    answered = time.time()
    time.sleep(options.seconds)
    return {"begin": acted if options.settled else begin, "end": time.time(), "acted": acted, "answered": answered}


if __name__ == "__main__":
    main()
