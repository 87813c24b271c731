"""The endless job in a separate process that is started repeatedly, and its progress."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.integration.kafka.support import read
from tools.servers.kafka import KafkaServer


@contextmanager
def endless(folder: Path, kafka: KafkaServer, reads: str, writes: str, prefix: str) -> Iterator[Any]:
    """Yield a function that (re)starts the job with a parallelism. The job is killed at the end."""
    running: list[subprocess.Popen[bytes]] = []
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def start(parallelism: int = 2, moment: str = "") -> subprocess.Popen[bytes]:
        program = "tests.integration.kafka.endless_job"
        arguments = [str(folder), kafka.bootstrap_servers, reads, writes, prefix, str(parallelism), moment]
        with (folder / "job.log").open("ab") as log:
            process = subprocess.Popen([sys.executable, "-m", program, *arguments], stdout=log, stderr=log, env=found)
        running.append(process)
        return process

    try:
        yield start
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
            process.wait()


def end_offsets(kafka: KafkaServer, name: str) -> int:
    """Return the sum of the end offsets of a topic's committed records. Retry while a broker restarts."""
    until = time.monotonic() + 60
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "x", "isolation.level": "read_committed"}
    )
    try:
        while True:
            try:
                partitions = consumer.list_topics(name, timeout=30).topics[name].partitions
                return sum(consumer.get_watermark_offsets(TopicPartition(name, p), timeout=30)[1] for p in partitions)
            except KafkaException:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
    finally:
        consumer.close()


def written(kafka: KafkaServer, name: str) -> int:
    return len(read(kafka.bootstrap_servers, name))
