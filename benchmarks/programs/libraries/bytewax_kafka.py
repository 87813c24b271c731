"""Count per key from topic to topic in bytewax: two processes, a recovery store with a snapshot every second.

Its Kafka sink has no transactions. After a crash it repeats the output since the last snapshot, so it delivers at least once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import bytewax.operators as op
import orjson
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.outputs import StatelessSinkPartition
from bytewax_readings import PROCESSES, free_port


class Noted(StatelessSinkPartition):
    """A sink's partition that records when it was created and when it ended."""

    def __init__(self, partition, summary: Path) -> None:
        self.partition, self.summary, self.begin = partition, summary, time.time()

    def write_batch(self, items) -> None:
        self.partition.write_batch(items)

    def close(self) -> None:
        self.partition.close()
        self.summary.write_text(json.dumps({"begin": self.begin, "end": time.time()}))


class NotedSink(KafkaSink):
    def __init__(self, servers: str, topic: str, out: Path) -> None:
        super().__init__([servers], topic)
        self.out = out

    def build(self, step_id, worker_index, worker_count):
        partition = super().build(step_id, worker_index, worker_count)
        return Noted(partition, self.out / f"summary-{os.getpid()}-{worker_index}.json")


def parse(message):
    reading = orjson.loads(message.value)
    return reading["sensor_id"], reading


def count(state, reading):
    n = 1 if state is None else state + 1
    return n, n


def written(keyed):
    sensor, n = keyed
    return KafkaSinkMessage(None, orjson.dumps({"sensor_id": sensor, "n": n}))


def flow(servers: str, reads: str, writes: str, out: str) -> Dataflow:
    """Return the dataflow that `bytewax.run` runs."""
    dataflow = Dataflow("kafka")
    messages = op.input("readings", dataflow, KafkaSource([servers], [reads], tail=False))
    counts = op.stateful_map("count", op.map("parse", messages, parse), count)
    op.output("counts", op.map("write", counts, written), NotedSink(servers, writes, Path(out)))
    return dataflow


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    for name in ("servers", "reads", "writes", "out"):
        arguments.add_argument(f"--{name}", required=True)
    options = arguments.parse_args()
    out = Path(options.out).resolve()
    store = out / "recovery"
    store.mkdir()
    subprocess.run([sys.executable, "-m", "bytewax.recovery", store, str(PROCESSES)], check=True)
    addresses = ";".join(f"localhost:{free_port()}" for _ in range(PROCESSES))
    dataflow = f"bytewax_kafka:flow({options.servers!r}, {options.reads!r}, {options.writes!r}, {str(out)!r})"
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "bytewax.run",
        dataflow,
        "-r",
        store,
        "-s",
        "1",
        "-b",
        "0",
        "-a",
        addresses,
    ]
    processes = [subprocess.Popen([*command, "-i", str(n)], cwd=Path(__file__).parent) for n in range(PROCESSES)]
    codes = [process.wait() for process in processes]
    if any(codes):
        sys.exit(f"bytewax ended with {codes}")
    summaries = [json.loads(path.read_text()) for path in out.glob("summary-*.json")]
    begin, end = (max(summary[name] for summary in summaries) for name in ("begin", "end"))
    print("RESULT " + json.dumps({"begin": begin, "end": end}))


if __name__ == "__main__":
    main()
