"""Kafka to Kafka: a million JSON readings of four partitions, counted by key, out again exactly once, a checkpoint every second.

The broker is outside what is measured. What comes out is read back committed and held against what must be in it.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import tempfile
import threading
import time
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
RATE = 1000
"""Readings per second where latency is measured."""
WARM_UP_S = 10
_START_S = 15
"""Until a job reads its first record, at most."""
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
        print(f"{shape.records:,} readings are in the topic", file=sys.stderr, flush=True)
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


def kafka_latency(records: int | None, repetitions: int) -> dict[str, Any]:
    """1,000 readings per second from topic to topic, at least once: from before a reading is written until its count is read."""
    seconds = max(10, (records or 20_000) // RATE)
    found = []
    with tempfile.TemporaryDirectory(prefix="penstock-kafka-") as folder, KafkaServer(Path(folder, "broker")) as server:
        for number in range(repetitions):
            reads, writes, out = f"in-{number}", f"out-{number}", Path(folder, str(number))
            out.mkdir()
            for name in (reads, writes):
                server.create_topic(name, PARTITIONS)
            topics = ["--servers", server.bootstrap_servers, "--reads", reads, "--writes", writes, "--out", str(out)]
            path = Path(__file__).resolve().parent.parent / "programs" / "penstock_kafka.py"
            more = ["--guarantee", "AT_LEAST_ONCE", "--seconds", str(_START_S + WARM_UP_S + seconds)]
            with _Pacer(server, reads), _Listener(server, writes) as listener:
                run = execute(
                    [sys.executable, str(path), *topics, *more], {}, RATE * seconds, out / "log.txt", keep_moments=True
                )
            begin = run.result["begin"] + WARM_UP_S
            taken = [1e3 * (at - due) for at, due in listener.arrivals if begin <= due <= begin + seconds]
            assert len(taken) >= 0.99 * RATE * seconds, f"only {len(taken)} counts came"
            p50, p99 = np.percentile(taken, [50, 99])
            found.append({"p50_ms": p50, "p99_ms": p99, "load": run.load, "cores": run.cpu_s / run.wall_s})
            print(f"p50 {p50:.1f} ms, p99 {p99:.1f} ms", file=sys.stderr)
    medians = {key: round(float(statistics.median(one[key] for one in found)), 2) for key in found[0]}
    return {"rate": RATE, "seconds": seconds, "penstock": medians, "goal": {"p50_ms": 25}}


class _Pacer(threading.Thread):
    """Writes readings of 1,000 sensors at a rate, each with the moment (µs) at which it was due."""

    def __init__(self, server: KafkaServer, topic: str) -> None:
        from confluent_kafka import Producer

        super().__init__(name="pacer", daemon=True)
        self._producer = Producer({"bootstrap.servers": server.bootstrap_servers, "linger.ms": 0})
        self._topic = topic
        self._ended = threading.Event()

    def run(self) -> None:
        began = time.time()
        for number in itertools.count():
            due = began + number / RATE
            if self._ended.wait(max(0.0, due - time.time())):
                return
            sensor = number % 1000
            value = b'{"sensor_id":"s%07d","ts":%d,"temp":%.2f}' % (sensor, int(due * 1e6), number % 50)
            self._producer.produce(self._topic, value, partition=sensor % PARTITIONS)
            self._producer.poll(0)

    def __enter__(self) -> _Pacer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self.join()
        self._producer.flush(10)


class _Listener(threading.Thread):
    """Reads counts as they come; `arrivals`: when each came, and when its reading was due (s since the epoch)."""

    def __init__(self, server: KafkaServer, topic: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        super().__init__(name="listener", daemon=True)
        self._consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "listener"})
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self._ended = threading.Event()
        self.arrivals: list[tuple[float, float]] = []

    def run(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.arrivals.append((time.time(), json.loads(message.value())["ts"] / 1e6))

    def __enter__(self) -> _Listener:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self.join()
        self._consumer.close()


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
        for sensor, moment, temperature in rows:
            value = b'{"sensor_id":"s%07d","ts":%d,"temp":%.2f}' % (sensor, moment, temperature)
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
