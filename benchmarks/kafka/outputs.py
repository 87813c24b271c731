"""What a system wrote, read back committed and held against what must be in it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.kafka.systems import COUNTS
from benchmarks.kafka.topics import PARTITIONS
from tools.kafkaserver import KafkaServer

Integers = npt.NDArray[np.int64]
_SILENCE_S = 60.0


@dataclass(frozen=True)
class Outputs:
    """Of every message, in no order that means anything: the sensor's number, its count, and whether it is put (1) or taken back (-1)."""

    sensor: Integers
    count: Integers
    diff: Integers


def read_outputs(server: KafkaServer, topic: str) -> Outputs:
    """All that readers of committed messages see.

    Raises:
        TimeoutError: the broker tells no end of a partition for a minute.
    """
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    settings = {"bootstrap.servers": server.bootstrap_servers, "group.id": "check", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    rows: list[tuple[int, int, int]] = []
    ended: set[int] = set()
    heard = time.monotonic()
    try:
        while len(ended) < PARTITIONS:
            messages = consumer.consume(10_000, 1.0)
            for message in messages:
                if message.error() is not None:
                    if message.error().code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(message.error())
                    ended.add(message.partition())
                    continue
                about = json.loads(message.value())
                rows.append((int(about["sensor_id"][1:]), about["n"], about.get("diff", 1)))
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > _SILENCE_S:
                raise TimeoutError(f"{topic}: only {len(ended)} of {PARTITIONS} partitions have an end")
    finally:
        consumer.close()
    return Outputs(*np.array(rows, np.int64).reshape(-1, 3).T)


def difference(outputs: Outputs, expected: Integers, kind: str) -> str | None:
    """What is wrong with them, None if nothing is.

    Counts: of every sensor 1 to n, each once. Updates: what was put and not taken back is each sensor's last count, once.

    Args:
        expected: how many readings each sensor has.
    """
    codes = _codes(outputs.sensor, outputs.count)
    sensors = np.arange(len(expected))
    if kind == COUNTS:
        firsts = np.repeat(np.cumsum(expected) - expected, expected)
        wanted = _codes(np.repeat(sensors, expected), np.arange(expected.sum()) - firsts + 1)
    else:
        present = expected > 0
        wanted = _codes(sensors[present], expected[present])
    found, places = np.unique(codes, return_inverse=True)
    times = np.bincount(places, weights=outputs.diff, minlength=len(found)).astype(np.int64)
    right = np.isin(found, wanted)
    lost = len(wanted) - int((times[right] > 0).sum())
    repeated = int(np.maximum(times[right] - 1, 0).sum())
    others = int(np.abs(times[~right]).sum())
    if not (lost or repeated or others):
        return None
    return f"{lost} of {len(wanted)} counts lost, {repeated} repeated, {others} that no reading gives"


def _codes(sensor: Integers, count: Integers) -> Integers:
    """Both numbers in one, so that pairs can be compared as numbers."""
    codes: Integers = (sensor << 32) + count
    return codes
