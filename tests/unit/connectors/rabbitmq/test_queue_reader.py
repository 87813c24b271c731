"""Messages that become records, and the time for which their ids are kept, with any timing of deliveries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest

from penstock.common.errors import RecordFormatError, SourceError
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.core.source import ReadBounds
from penstock.connectors.rabbitmq import client, consumer
from penstock.connectors.rabbitmq.consumer import Delivery, Emptied
from penstock.connectors.rabbitmq.seen_ids import SeenIds
from penstock.connectors.rabbitmq.source import QueueReader
from penstock.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQSource
from tests.unit.connectors.rabbitmq.queue_fakes import FakeBroker, connect_to

REPEATED = [f"m{number}" for number in range(1000)]


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., QueueReader]]:
    monkeypatch.setattr(consumer, "_COUNT_S", 0.0)
    opened: list[QueueReader] = []

    def read(broker: FakeBroker, position: str, *, prefetch: int, exact: bool = True) -> QueueReader:
        connect_to(broker, monkeypatch)
        builder = RMQConnectionConfig.Builder().set_prefetch_count(prefetch)
        builder.set_requested_heartbeat(0).set_network_recovery_interval(10)
        source = RMQSource(builder.build(), "orders", exact, SimpleStringSchema(), keep_ids=0)
        opened.append(QueueReader(source, "in", position))
        return opened[-1]

    yield read
    for reader in opened:
        reader.close()


def position_of(ids: list[str]) -> str:
    seen = SeenIds("", 0.0)
    for id in ids:
        seen.add(id)
    return seen.position


def values_until(reader: QueueReader, done: Callable[[], bool], *, checkpoints: bool = True) -> list[Any]:
    """Return the values read until `until` returns True, with a checkpoint after every read."""
    values: list[Any] = []
    number = 0
    deadline = time.monotonic() + 20
    while not done():
        assert time.monotonic() < deadline
        batch = reader.read(ReadBounds())
        values += [] if batch is None else batch.rows().values
        if checkpoints:
            number += 1
            reader.snapshot(number)
            reader.notify_checkpoint_complete(number)
        time.sleep(0.001)
    return values


def test_restored_ids_are_kept_while_their_messages_are_not_delivered_yet(reading: Any) -> None:
    broker = FakeBroker(REPEATED)
    reader = reading(broker, position_of(REPEATED), prefetch=100)
    values = values_until(reader, lambda: broker._acknowledged == len(REPEATED))
    assert values == []


def test_ids_are_forgotten_after_the_queue_was_empty(reading: Any) -> None:
    broker = FakeBroker(REPEATED)
    reader = reading(broker, position_of(REPEATED), prefetch=5000)
    values_until(reader, lambda: reader.position == "")
    broker.publish("m0")
    assert values_until(reader, lambda: broker._acknowledged > len(REPEATED)) == ["m0"]


def test_an_empty_queue_forgets_ids_that_are_not_delivered_again(reading: Any) -> None:
    reader = reading(FakeBroker([]), position_of(REPEATED), prefetch=10)
    assert values_until(reader, lambda: reader.position == "") == []


def test_a_response_faster_than_deliveries_forgets_no_ids(reading: Any) -> None:
    broker = FakeBroker(REPEATED[:50])
    reader = reading(broker, position_of(REPEATED), prefetch=100)
    values = values_until(reader, lambda: reader._last is not None and reader._last[1] == 50, checkpoints=False)
    assert values == []


def test_a_queue_without_a_leader_does_not_count_as_empty(reading: Any) -> None:
    broker = FakeBroker(REPEATED)
    broker.has_leader = False
    reader = reading(broker, position_of(REPEATED), prefetch=100)
    assert values_until(reader, lambda: broker._acknowledged == len(REPEATED)) == []


@pytest.mark.parametrize(("read", "forgotten"), [((1, 4), False), ((1, 5), True), ((2, 6), False), (None, False)])
def test_ids_are_kept_until_earlier_deliveries_are_read(reading: Any, read: Any, forgotten: bool) -> None:
    reader = reading(FakeBroker([]), position_of(["a"]), prefetch=10)
    reader._consumer.close()
    reader._seen.connected(0.0)
    reader._number, reader._last = reader._consumer.number, read
    reader._consumer.emptied = Emptied(1, 5, 1e9)
    assert reader.read(ReadBounds()) is None
    assert (reader.position == "") is forgotten


@pytest.mark.parametrize("comes_later", [False, True])
def test_a_second_consumer_of_the_queue_is_an_error(
    reading: Any, monkeypatch: pytest.MonkeyPatch, comes_later: bool
) -> None:
    """A quorum queue accepts a second consumer, even if the first one is exclusive."""
    monkeypatch.setattr(client, "PATIENCE_S", 0.1)
    broker = FakeBroker(["m0"])
    broker.others = 0 if comes_later else 1
    reader = reading(broker, "", prefetch=10)
    if comes_later:
        assert values_until(reader, lambda: broker._acknowledged == 1) == ["m0"]
        broker.others = 1
    with pytest.raises(SourceError, match="1 other consumers, but the source needs exclusive use") as error:
        values_until(reader, lambda: False, checkpoints=False)
    assert "stop the other consumer" in error.value.remedy
    assert broker._tag == int(comes_later)


def test_other_consumers_are_allowed_without_ids(reading: Any) -> None:
    broker = FakeBroker(["m0"])
    broker.others = 2
    reader = reading(broker, "", prefetch=10, exact=False)
    assert values_until(reader, lambda: broker._acknowledged == 1) == ["m0"]


def test_an_empty_id_is_refused_and_an_id_of_bytes_is_accepted(reading: Any) -> None:
    broker = FakeBroker([b"\xff\xfe", b"\xff\xfe", "b"])
    reader = reading(broker, "", prefetch=10)
    values = values_until(reader, lambda: reader._last is not None and reader._last[1] == 3, checkpoints=False)
    assert values == [str(b"\xff\xfe"), "b"]
    broker.publish("")
    with pytest.raises(RecordFormatError, match="has no correlation id"):
        values_until(reader, lambda: False, checkpoints=False)


def test_a_batch_ends_between_messages_with_and_without_timestamps(reading: Any) -> None:
    reader = reading(FakeBroker([]), "", prefetch=10)
    for tag, at in enumerate((1000, 2000, None, 4000), 1):
        reader._consumer._inbox.put([Delivery(1, tag, False, 0.0, str(tag), at, b"x")])
    batches = [reader.read(ReadBounds()) for _ in range(3)]
    assert [batch.rows().timestamps for batch in batches] == [[1000, 2000], None, [4000]]
    assert reader.read(ReadBounds()) is None


def test_the_fake_returns_the_same_ids_as_pika() -> None:
    """pika returns ids that are not UTF-8 as bytes."""
    encoded = b"".join(pika.BasicProperties(correlation_id=b"\xff\xfe").encode())
    assert pika.BasicProperties().decode(encoded).correlation_id == b"\xff\xfe"
