"""What a client does that brokers refuse: it takes what its files have now, and gives up when that changes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from penstock.common.errors import SinkError, SourceError
from penstock.connectors.kafka import client
from penstock.connectors.kafka.client import SHUT_OUT_S, Complaints
from penstock.connectors.kafka.sink.producer import KafkaProducer
from penstock.connectors.kafka.source.reader import SharedConsumer

REFUSED, DOWN = KafkaError(KafkaError._AUTHENTICATION), KafkaError(KafkaError._ALL_BROKERS_DOWN)
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [1_000.0]
    monkeypatch.setattr(client.time, "monotonic", lambda: time[0])
    return time


def test_half_a_minute_of_refusals_is_the_end(now: list[float]) -> None:
    complaints = Complaints()
    complaints(DOWN)
    for _ in range(int(SHUT_OUT_S // 10) + 1):
        complaints(REFUSED)
        assert not complaints.is_shut_out
        now[0] += 10
    complaints(REFUSED)
    assert complaints.is_shut_out


def test_a_refusal_now_and_then_is_none(now: list[float]) -> None:
    complaints = Complaints()
    for _ in range(5):
        complaints(REFUSED)
        now[0] += SHUT_OUT_S + 1
        assert not complaints.is_shut_out


class Client:
    """Whose brokers refuse it twice in a call."""

    def __init__(self, complaints: Complaints) -> None:
        self.credentials: tuple[str, str] | None = None
        self._complaints = complaints
        self._is_within_a_call = False

    def consume(self, most: int, seconds: float) -> list[Any]:
        self._is_within_a_call = True
        self._complaints(REFUSED)
        self._complaints(REFUSED)
        self._is_within_a_call = False
        return []

    def poll(self, seconds: float) -> int:
        return len(self.consume(0, seconds))

    def set_sasl_credentials(self, username: str, password: str) -> None:
        assert not self._is_within_a_call
        self.credentials = username, password

    def close(self) -> None:
        pass


def test_a_password_comes_anew_from_its_file_and_stays_without_it(tmp_path: Path) -> None:
    path, complaints = tmp_path / "password", Complaints()
    found, properties = Client(complaints), {"sasl.username": "me", "sasl.password.file": str(path)}
    complaints(REFUSED)
    complaints.renew(found, properties)
    assert found.credentials is None
    path.write_text("second\n")
    complaints.renew(found, properties)
    assert found.credentials is None
    complaints(REFUSED)
    complaints.renew(found, properties)
    assert found.credentials == ("me", "second")
    complaints(REFUSED)
    complaints.renew(found, {"sasl.username": "me", "sasl.password": "third"})
    assert found.credentials == ("me", "second")


def test_a_client_is_given_the_password_after_the_call_in_which_it_tells_of_a_refusal(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("second")
    properties = {**NOWHERE, "sasl.username": "me", "sasl.password.file": str(path)}
    producer, consumer = KafkaProducer(properties), SharedConsumer(properties)
    found = producer._producer = Client(producer._complaints)
    producer.look()
    assert found.credentials == ("me", "second")
    consumer.close()
    found = consumer._consumer = Client(consumer._complaints)
    consumer.fill()
    assert found.credentials == ("me", "second")


REFUSED_TWICE = """
import sys, time
from penstock.connectors.kafka import client
from penstock.connectors.kafka.sink.producer import KafkaProducer
client._REFUSED = ("_TRANSPORT",)
security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.password.file": sys.argv[1]}
producer = KafkaProducer({"bootstrap.servers": "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "sasl.username": "me", **security})
deadline = time.monotonic() + 30
while len(producer._producer) < 5 and time.monotonic() < deadline:  # three lines of the log, so two errors at least
    time.sleep(0.01)
producer.look()
print(producer._complaints._refusals)
"""


def test_two_refusals_in_a_call_end_no_process(tmp_path: Path) -> None:
    """In a process of its own, for what it is about ends the one that asks."""
    path = tmp_path / "password"
    path.write_text("second")
    command = [sys.executable, "-c", REFUSED_TWICE, str(path)]
    looked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert looked.returncode == 0, looked.stderr
    assert int(looked.stdout) >= 2


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
