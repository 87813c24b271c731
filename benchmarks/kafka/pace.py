"""The load for latency measures: write readings at a rate, and record the arrival of their counts."""

from __future__ import annotations

import itertools
import json
import threading
import time

from benchmarks.kafka.topics import PARTITIONS
from tools.servers.kafka import KafkaServer

RATE = 1000
"""Readings per second."""


class Pacer(threading.Thread):
    """A writer of readings of 1,000 sensors at a rate. Each reading has the moment (µs) at which it was due."""

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

    def __enter__(self) -> Pacer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self.join()
        self._producer.flush(10)


class Listener(threading.Thread):
    """A reader of counts. `arrivals` has the moment of each count's arrival, and when its reading was due (s since the epoch)."""

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

    def __enter__(self) -> Listener:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self.join()
        self._consumer.close()
