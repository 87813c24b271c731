"""Clients end when they are no longer referenced. A failed attempt leaves no threads or connections."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer

from penstock.common.errors import SinkError
from penstock.connectors.kafka.sink import producer
from penstock.connectors.kafka.sink.producer import KafkaProducer
from penstock.connectors.kafka.sink.transactional_producers import TransactionalProducers
from penstock.connectors.kafka.source.reader import SharedConsumer
from tests.unit.connectors.kafka.mock_cluster import MockCluster


@pytest.fixture
def servers() -> Iterator[str]:
    with MockCluster("readings") as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """Disable the garbage collector, which would end some clients at any time, in any thread."""
    gc.collect()
    gc.freeze()  # leave out all other objects of the session, which take seconds to search
    gc.disable()
    yield
    gc.enable()


def clients() -> int:
    return sum(isinstance(found, Producer | Consumer) for found in gc.get_objects())


def plain(servers: str) -> None:
    KafkaProducer({"bootstrap.servers": servers}).send_all("readings", [b"not flushed"] * 10)


def transactional(servers: str) -> None:
    KafkaProducer({"bootstrap.servers": servers}, "id").prepare().send_all("readings", [b"not flushed"] * 10)


def reading(servers: str) -> None:
    consumer = SharedConsumer({"bootstrap.servers": servers})
    consumer.add("readings", 0, 0)
    consumer.fill()


@pytest.mark.parametrize("use", [plain, transactional, reading])
def test_an_unreferenced_client_has_ended(servers: str, use: Callable[[str], None]) -> None:
    before = clients()
    use(servers)
    assert clients() == before


def test_a_failed_transaction_start_leaves_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "_INIT_S", 0.1)
    before = clients()
    producers = TransactionalProducers({"bootstrap.servers": "127.0.0.1:1"}, str)
    with pytest.raises(SinkError, match="cannot start") as caught:
        producers.take()
    assert clients() == before, caught
    producers.close()
