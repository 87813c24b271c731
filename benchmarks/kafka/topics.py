"""The input topic: JSON readings. All readings of a sensor are in one partition, with its name as the message key."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.readings import Shape, columns
from tools.servers.kafka import KafkaServer

PARTITIONS = 4
_BATCH = 20_000


def fill(server: KafkaServer, topic: str, shape: Shape) -> npt.NDArray[np.int64]:
    """Write the readings, and return the number of readings of each sensor."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "linger.ms": 50, "compression.type": "none"})
    whole = columns(shape)
    for begin in range(0, shape.records, _BATCH):
        span = slice(begin, begin + _BATCH)
        rows = zip(
            whole.sensor[span].tolist(), whole.time[span].tolist(), whole.temperature[span].tolist(), strict=True
        )
        parts: list[list[dict[str, bytes]]] = [[] for _ in range(PARTITIONS)]
        for sensor, moment, temperature in rows:
            key = b"s%07d" % sensor
            value = b'{"sensor_id":"%b","ts":%d,"temp":%.2f}' % (key, moment, temperature)
            parts[sensor % PARTITIONS].append({"key": key, "value": value})
        for partition, messages in enumerate(parts):
            producer.produce_batch(topic, messages, partition)
        while len(producer) > 50_000:
            producer.poll(0.05)
    assert producer.flush(120) == 0
    return np.bincount(whole.sensor, minlength=shape.keys)
