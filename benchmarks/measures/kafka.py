"""Kafka to Kafka: a million JSON readings of four partitions, counted by key, out again exactly once, a checkpoint every second.

The broker is outside what is measured. What comes out is read back committed and held against what must be in it.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.environments import python_of, site_packages
from benchmarks.execution import Run, execute
from benchmarks.readings import Shape, columns
from tools.kafkaserver import KafkaServer
from tools.mavenjars import MavenJars

RECORDS = 1_000_000
KEYS = 10_000
PARTITIONS = 4
JARS = MavenJars(Path(__file__).resolve().parent.parent / "flinkkafka")
GOALS = {"to_flink_sql": 1.0}


def kafka(records: int | None, repetitions: int) -> dict[str, Any]:
    """Penstock, exactly and at least once, and Flink SQL with its connector, in turn."""
    shape = Shape(records or RECORDS, KEYS, 0)
    flink = {"PYTHONPATH": str(site_packages("flink"))}
    systems = {
        "penstock": ("penstock_kafka.py", sys.executable, {}, []),
        "penstock-at-least-once": ("penstock_kafka.py", sys.executable, {}, ["--guarantee", "AT_LEAST_ONCE"]),
        "flink-sql": ("flink_sql_kafka.py", str(python_of("flink")), flink, ["--jars", str(JARS.ensure())]),
    }
    found: dict[str, list[Run]] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-kafka-") as folder, KafkaServer(Path(folder, "broker")) as server:
        server.create_topic("in", PARTITIONS)
        expected = _fill(server, shape)
        for number, (name, (program, python, environment, more)) in itertools.product(
            range(repetitions), systems.items()
        ):
            writes, out = f"out-{name}-{number}", Path(folder, f"{name}-{number}")
            out.mkdir()
            server.create_topic(writes, PARTITIONS)
            topics = ["--servers", server.bootstrap_servers, "--reads", "in", "--writes", writes, "--out", str(out)]
            path = Path(__file__).resolve().parent.parent / "programs" / program
            run = execute([python, str(path), *topics, *more], environment, shape.records, out / "log.txt")
            _check(server, writes, expected)
            print(f"{name}: {run.cpu_us:.2f} us of CPU, {run.rate:,.0f} records/s", file=sys.stderr)
            found.setdefault(name, []).append(run)
    figures = {
        name: {
            "cpu_us": round(statistics.median(run.cpu_us for run in runs), 2),
            "jvm_cpu_us": round(statistics.median(run.jvm_cpu_s / run.records * 1e6 for run in runs), 2),
            "records_s": round(statistics.median(run.rate for run in runs)),
            "load": max(run.load for run in runs),
            "others_cores": round(max(run.others for run in runs), 2),
        }
        for name, runs in found.items()
    }
    ratio = round(figures["penstock"]["cpu_us"] / figures["flink-sql"]["cpu_us"], 2)
    return {"records": shape.records, "keys": KEYS, "systems": figures, "to_flink_sql": ratio, "goal": GOALS}


def _fill(server: KafkaServer, shape: Shape) -> Counter[str]:
    """Write the readings, a sensor's all into one partition; how many each sensor has."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "linger.ms": 50, "compression.type": "none"})
    whole = columns(shape)
    for begin in range(0, shape.records, 20_000):
        span = slice(begin, begin + 20_000)
        rows = zip(
            whole.sensor[span].tolist(), whole.time[span].tolist(), whole.temperature[span].tolist(), strict=True
        )
        parts: list[list[dict[str, bytes]]] = [[] for _ in range(PARTITIONS)]
        for sensor, time, temperature in rows:
            value = b'{"sensor_id":"s%07d","ts":%d,"temp":%.2f}' % (sensor, time, temperature)
            parts[sensor % PARTITIONS].append({"value": value})
        for partition, messages in enumerate(parts):
            producer.produce_batch("in", messages, partition)
        while len(producer) > 50_000:
            producer.poll(0.05)
    assert producer.flush(120) == 0
    sensors, counts = np.unique(whole.sensor, return_counts=True)
    return Counter({f"s{sensor:07d}": int(count) for sensor, count in zip(sensors, counts, strict=True)})


def _check(server: KafkaServer, topic: str, expected: Counter[str]) -> None:
    """Of every key the counts 1 to n, each once.

    Raises:
        AssertionError: something was lost, or came twice.
    """
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": server.bootstrap_servers, "group.id": "check", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    seen: Counter[str] = Counter()
    highest: dict[str, int] = {}
    ended = 0
    while ended < PARTITIONS:
        for message in consumer.consume(10_000, 1.0):
            if message.error() is not None:
                ended += 1
                continue
            about = json.loads(message.value())
            seen[about["sensor_id"]] += 1
            highest[about["sensor_id"]] = max(highest.get(about["sensor_id"], 0), about["n"])
    consumer.close()
    assert highest == dict(expected), f"{topic}: the highest counts are not those of the input"
    assert seen == expected, f"{topic}: {seen.total()} counts instead of {expected.total()}"
