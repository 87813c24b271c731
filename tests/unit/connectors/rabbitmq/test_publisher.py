"""Messages in flight, and the time in which a publisher reconnects."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pika
import pytest

from penstock.common.errors import SinkError
from penstock.connectors.rabbitmq import client, publisher
from penstock.connectors.rabbitmq.message import Message
from penstock.connectors.rabbitmq.publisher import Publisher
from penstock.datastream.connectors.rabbitmq import RMQConnectionConfig


def messages(*sizes: int) -> list[Message]:
    return [Message("", "q", b"x" * size, None) for size in sizes]


def test_batches_are_bounded_in_messages_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "MOST", 3)
    monkeypatch.setattr(publisher, "MOST_BYTES", 100)
    parts = list(publisher._parts(messages(1, 1, 1, 1, 60, 40, 500, 5)))
    assert [[len(message.body) for message in part] for part, _ in parts] == [[1, 1, 1], [1, 60], [40], [500], [5]]
    assert [size for _, size in parts] == [3, 61, 40, 500, 5]


class Ending:
    """A fake connection that the broker closes after every publish."""

    is_open = True
    is_closing = False
    made = 0

    def __init__(self, _: Any, on_open_callback: Any, **callbacks: Any) -> None:
        Ending.made += 1
        self.ioloop = self
        self._on_open = on_open_callback

    def start(self) -> None:
        self._on_open(self)

    def channel(self, on_open_callback: Any) -> None:
        on_open_callback(self)

    def confirm_delivery(self, on_confirmation: Any, callback: Any) -> None:
        callback(None)

    def basic_publish(self, *message: Any, mandatory: bool) -> None:
        raise pika.exceptions.ConnectionClosedByBroker(501, "FRAME_ERROR")

    def nothing(self, *_: Any) -> None:
        pass

    add_on_connection_blocked_callback = add_on_connection_unblocked_callback = nothing
    add_on_close_callback = add_on_return_callback = add_callback_threadsafe = close = stop = nothing


def test_a_message_that_ends_every_connection_is_an_error_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(SelectConnection=Ending, exceptions=pika.exceptions)
    monkeypatch.setattr(publisher, "package", lambda: found)
    monkeypatch.setattr(client, "PATIENCE_S", 0.3)
    config = RMQConnectionConfig.Builder().set_network_recovery_interval(20).build()
    sending = Publisher(config, "out")
    began = time.monotonic()
    try:
        sending.send(messages(1))
        with pytest.raises(SinkError, match="501 FRAME_ERROR"):
            sending.flush()
    finally:
        sending.close()
    assert Ending.made > 1
    assert time.monotonic() - began < 10
