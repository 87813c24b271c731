"""A fake broker with a queue and one consumer, without a network."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pika
import pytest

from penstock.connectors.rabbitmq import consumer

_SLOWNESS = 20
"""Number of processing steps of the connection between a delivery by the queue and its arrival."""


class FakeBroker:
    """A fake of `BlockingConnection` and its channel.

    Args:
        ready: ids of messages that were delivered before, and are delivered again.
    """

    is_open = True

    def __init__(self, ready: list[Any]) -> None:
        self._ready = deque((id, True) for id in ready)
        self.has_leader = True
        self.others = self._consumers = 0
        self._prefetch = self._tag = self._acknowledged = self._turn = 0
        self._on_way: deque[tuple[int, Any, Any]] = deque()
        """Deliveries in transit, each with the step of its arrival."""
        self._tag_at_last_declare = 0
        """The last delivery tag in transit at the time of the last request."""
        self._on_message: Callable[..., None] | None = None
        self._lock = threading.RLock()

    def publish(self, *ids: Any) -> None:
        with self._lock:
            self._ready += [(id, False) for id in ids]
            self._deliver()

    def channel(self) -> FakeBroker:
        return self

    def close(self) -> None:
        self._consumers = 0

    def add_callback_threadsafe(self, function: Any) -> None:
        pass

    def add_on_cancel_callback(self, function: Any) -> None:
        pass

    def basic_qos(self, prefetch_count: int) -> None:
        self._prefetch = prefetch_count

    def basic_consume(self, queue: str, on_message: Any, exclusive: bool) -> None:
        with self._lock:
            self._on_message = on_message
            self._consumers = 1
            self._deliver()

    def basic_ack(self, tag: int, multiple: bool) -> None:
        with self._lock:
            self._acknowledged = tag
            self._deliver()

    def queue_declare(self, queue: str, passive: bool) -> Any:
        """Return the response before the deliveries in transit, but after those in transit at the last request."""
        with self._lock:
            self._on_way = deque(
                (0 if method.delivery_tag <= self._tag_at_last_declare else until, method, properties)
                for until, method, properties in self._on_way
            )
            self._tag_at_last_declare = self._tag
            found = (len(self._ready), self._consumers + self.others) if self.has_leader else (0, 0)
        return SimpleNamespace(method=SimpleNamespace(message_count=found[0], consumer_count=found[1]))

    def process_data_events(self, time_limit: float) -> None:
        time.sleep(0.001)
        with self._lock:
            self._turn += 1
            while self._on_way and self._on_way[0][0] <= self._turn:
                _, method, properties = self._on_way.popleft()
                assert self._on_message is not None
                self._on_message(self, method, properties, str(properties.correlation_id).encode())

    def _deliver(self) -> None:
        while self._on_message and self._ready and self._tag - self._acknowledged < self._prefetch:
            id, again = self._ready.popleft()
            self._tag += 1
            method = SimpleNamespace(delivery_tag=self._tag, redelivered=again)
            properties = pika.BasicProperties(correlation_id=id)
            self._on_way.append((self._turn + _SLOWNESS, method, properties))


def connect_to(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all new consumers read this queue."""
    found = SimpleNamespace(BlockingConnection=lambda _: broker, exceptions=pika.exceptions)
    monkeypatch.setattr(consumer, "package", lambda: found)
