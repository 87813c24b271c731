"""Count per key from topic to topic in Quix Streams, exactly once: two processes of one consumer group, a commit every second.

State is RocksDB with changelog topics, from which Quix restores it after a crash. The readings' topic has the sensor as key,
so `group_by` and its extra topic are not necessary. An `Application` reads until it is stopped. It gets a SIGTERM, like from
Kubernetes, when the offsets of all readings are committed, and therefore all counts are, too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import orjson
from confluent_kafka import Consumer, TopicPartition
from quixstreams import Application, State
from quixstreams.models import JSONDeserializer

PROCESSES = 2
POLL_S = 0.25


class NotedJson(JSONDeserializer):
    """A JSON format whose process records its first decoding."""

    def __init__(self, folder: Path) -> None:
        super().__init__(loads=self._first)
        self.folder = folder

    def _first(self, data):
        self._loads = orjson.loads
        Path(self.folder, f"begin-{os.getpid()}-{time.time_ns()}").touch()
        return self._loads(data)


def count(reading: dict, state: State) -> dict:
    n = state.get("n", 0) + 1
    state.set("n", n)
    return {"sensor_id": reading["sensor_id"], "n": n}


def work(options: argparse.Namespace) -> None:
    """Run one process of the group."""
    out = Path(options.out)
    application = Application(
        broker_address=options.servers,
        consumer_group=f"quix-{options.writes}",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=1.0,
        state_dir=out / f"state-{options.worker}",
        loglevel="WARNING",
    )
    readings = application.dataframe(application.topic(options.reads, value_deserializer=NotedJson(out)))
    readings.apply(count, stateful=True).to_topic(application.topic(options.writes))
    application.run()


def await_committed(options: argparse.Namespace, processes: list[subprocess.Popen]) -> float:
    """Return when the group had committed all current messages of the topic (s since the epoch, at most 0.25 s late)."""
    consumer = Consumer({"bootstrap.servers": options.servers, "group.id": f"quix-{options.writes}"})
    partitions = [
        TopicPartition(options.reads, n) for n in consumer.list_topics(options.reads).topics[options.reads].partitions
    ]
    ends = {partition.partition: consumer.get_watermark_offsets(partition)[1] for partition in partitions}
    while any(found.offset < ends[found.partition] for found in consumer.committed(partitions, timeout=10)):
        if any(process.poll() is not None for process in processes):
            sys.exit("a process of the group ended unexpectedly")
        time.sleep(POLL_S)
    end = time.time()
    consumer.close()
    return end


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    for name in ("servers", "reads", "writes", "out"):
        arguments.add_argument(f"--{name}", required=True)
    arguments.add_argument("--worker", type=int, help="number of this process in the group (internal)")
    options = arguments.parse_args()
    if options.worker is not None:
        work(options)
        return
    processes = [subprocess.Popen([sys.executable, *sys.argv, "--worker", str(n)]) for n in range(PROCESSES)]
    end = await_committed(options, processes)
    for process in processes:
        process.terminate()
    codes = [process.wait() for process in processes]
    if any(codes):
        sys.exit(f"Quix Streams ended with {codes}")
    begin = min(int(path.name.rpartition("-")[2]) for path in Path(options.out).glob("begin-*")) / 1e9
    print("RESULT " + json.dumps({"begin": begin, "end": end}))


if __name__ == "__main__":
    main()
