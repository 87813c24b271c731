"""The inbox of a partition's reader is bounded in messages and in bytes."""

from __future__ import annotations

from confluent_kafka import Message

from penstock.connectors.kafka.source import reader
from penstock.connectors.kafka.source.reader import _Inbox


def messages(count: int, size: int) -> list[Message]:
    return [Message(value=b"x" * size) for _ in range(count)]


def test_many_small_messages_fill_the_inbox() -> None:
    inbox = _Inbox()
    inbox.put([None] * reader.MOST_WAITING)
    assert not inbox.holds(1.0)
    inbox.put(messages(1, 1))
    assert inbox.holds(1.0)
    assert len(inbox.take(30_000)) == 30_000
    assert not inbox.holds(0.5)


def test_a_few_large_messages_fill_the_inbox() -> None:
    inbox = _Inbox()
    for _ in range(18):
        inbox.put(messages(1, 1 << 20))
    assert inbox.holds(1.0)
    for _ in range(11):
        assert len(inbox.take(1)) == 1
    assert not inbox.holds(0.5)


def test_taken_messages_free_their_bytes() -> None:
    inbox = _Inbox()
    inbox.put(messages(3, 10))
    inbox.put(messages(10, 7))
    while inbox.waiting:
        inbox.take(3)
    assert inbox.waiting_bytes == 0
    assert inbox.take(1) == []


def test_messages_added_singly_are_taken_together_in_order() -> None:
    inbox = _Inbox()
    came = messages(7, 10)
    for message in came[:5]:
        inbox.put([message])
    inbox.put(came[5:])
    assert inbox.take(6) == came[:6]
    assert (inbox.waiting, inbox.waiting_bytes) == (1, 10)
    assert inbox.take(6) == came[6:]
    assert (inbox.waiting, inbox.waiting_bytes) == (0, 0)
