"""The committed output of a system, and its comparison with the expected output."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.kafka.systems import COUNTS
from benchmarks.kafka.topics import PARTITIONS
from tools.servers.kafka import KafkaServer

Integers = npt.NDArray[np.int64]
_SILENCE_S = 60.0


@dataclass(frozen=True)
class Outputs:
    """The sensor number and count of every message, and whether the message adds (1) or retracts (-1) it. The order has no meaning."""

    sensor: Integers
    count: Integers
    diff: Integers


def read_outputs(server: KafkaServer, topic: str) -> Outputs:
    """Read all committed messages.

    Raises:
        TimeoutError: the broker does not report the end of a partition within a minute.
    """
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    settings = {"bootstrap.servers": server.bootstrap_servers, "group.id": "check", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    rows: list[tuple[int, int, int]] = []
    ended: set[int] = set()
    start = time.monotonic()
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
                start = time.monotonic()
            elif time.monotonic() - start > _SILENCE_S:
                raise TimeoutError(f"{topic}: only {len(ended)} of {PARTITIONS} partitions have an end")
    finally:
        consumer.close()
    return Outputs(*np.array(rows, np.int64).reshape(-1, 3).T)


def difference(outputs: Outputs, expected: Integers, kind: str) -> str | None:
    """Return the difference from the expected output, or None if the output is correct.

    Counts must be 1 to n for every sensor, each once. Updates that were added and not retracted must be each sensor's last
    count, once.

    Args:
        expected: the number of readings of each sensor.
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
    """Combine both numbers into one, so that pairs compare as numbers."""
    codes: Integers = (sensor << 32) + count
    return codes
