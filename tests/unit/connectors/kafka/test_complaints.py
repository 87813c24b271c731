"""What a client does that brokers refuse: it takes what its files have now, and gives up when that changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from penstock.common.errors import SinkError, SourceError
from penstock.connectors.kafka import client
from penstock.connectors.kafka.client import SHUT_OUT_S, Complaints, renewed
from penstock.connectors.kafka.sink.producer import KafkaProducer
from penstock.connectors.kafka.source.reader import SharedConsumer

REFUSED, DOWN = KafkaError(KafkaError._AUTHENTICATION), KafkaError(KafkaError._ALL_BROKERS_DOWN)
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [1_000.0]
    monkeypatch.setattr(client.time, "monotonic", lambda: time[0])
    return time


def test_each_refusal_renews_and_half_a_minute_of_them_is_the_end(now: list[float]) -> None:
    renewals: list[float] = []
    complaints = Complaints(lambda: renewals.append(now[0]))
    complaints(DOWN)
    assert not renewals
    for _ in range(int(SHUT_OUT_S // 10) + 1):
        complaints(REFUSED)
        assert not complaints.is_shut_out
        now[0] += 10
    complaints(REFUSED)
    assert complaints.is_shut_out
    assert len(renewals) == SHUT_OUT_S // 10 + 2


def test_a_refusal_now_and_then_is_none(now: list[float]) -> None:
    complaints = Complaints()
    for _ in range(5):
        complaints(REFUSED)
        now[0] += SHUT_OUT_S + 1
        assert not complaints.is_shut_out


class Client:
    credentials: tuple[str, str] | None = None

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self.credentials = username, password


def test_a_password_comes_anew_from_its_file_and_stays_without_it(tmp_path: Path) -> None:
    path, found = tmp_path / "password", Client()
    properties = {"sasl.username": "me", "sasl.password.file": str(path)}
    renewed(found, properties)
    assert found.credentials is None
    path.write_text("second\n")
    renewed(found, properties)
    assert found.credentials == ("me", "second")
    renewed(found, {"sasl.username": "me", "sasl.password": "third"})
    assert found.credentials == ("me", "second")


def shut_out(complaints: Any, now: list[float]) -> None:
    for _ in range(6):
        complaints(REFUSED)
        now[0] += 10


def test_clients_that_are_shut_out_end_the_attempt(now: list[float]) -> None:
    consumer, producer = SharedConsumer(NOWHERE), KafkaProducer(NOWHERE)
    shut_out(consumer._complaints, now)
    shut_out(producer._complaints, now)
    with pytest.raises(SourceError, match=r"(?s)topics cannot be read at 127.0.0.1:1.*sasl.password"):
        consumer.fill()
    with pytest.raises(SinkError, match=r"(?s)messages cannot be written at 127.0.0.1:1.*sasl.password"):
        producer.look()
    consumer.close()
