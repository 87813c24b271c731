"""Clients that brokers refuse: they read their secret files again, and fail if this does not help."""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from penstock.common.errors import SinkError, SourceError
from penstock.connectors.kafka.client import LOGGER, SHUT_OUT_S, Complaints, FailureFilter
from penstock.connectors.kafka.sink.producer import KafkaProducer
from penstock.connectors.kafka.source.reader import SharedConsumer

REFUSED, DOWN = KafkaError(KafkaError._AUTHENTICATION), KafkaError(KafkaError._ALL_BROKERS_DOWN)
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds = [1_000.0]
    monkeypatch.setattr("time.monotonic", lambda: seconds[0])
    return seconds


def test_refusals_for_half_a_minute_shut_the_client_out(now: list[float]) -> None:
    complaints = Complaints()
    complaints(DOWN)
    for _ in range(int(SHUT_OUT_S // 10) + 1):
        complaints(REFUSED)
        assert not complaints.is_shut_out
        now[0] += 10
    complaints(REFUSED)
    assert complaints.is_shut_out


def test_rare_refusals_do_not_shut_the_client_out(now: list[float]) -> None:
    complaints = Complaints()
    for _ in range(5):
        complaints(REFUSED)
        now[0] += SHUT_OUT_S + 1
        assert not complaints.is_shut_out


class Client:
    """A client that reports two refusals of its brokers in one call."""

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


def test_a_refused_password_is_read_again_only_from_a_file(tmp_path: Path) -> None:
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


def test_a_client_receives_the_new_password_after_the_call_that_reports_a_refusal(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("second")
    properties = {**NOWHERE, "sasl.username": "me", "sasl.password.file": str(path)}
    producer, consumer = KafkaProducer(properties), SharedConsumer(properties)
    found = producer._producer = Client(producer._complaints)
    producer.check()
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
producer.check()
print(producer._complaints._refusals)
"""


def test_two_refusals_in_one_call_do_not_crash_the_process(tmp_path: Path) -> None:
    """The test uses a separate process, because a failure crashes the process."""
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


def test_clients_that_are_shut_out_fail_the_attempt(now: list[float]) -> None:
    consumer, producer = SharedConsumer(NOWHERE), KafkaProducer(NOWHERE)
    shut_out(consumer._complaints, now)
    shut_out(producer._complaints, now)
    with pytest.raises(SourceError, match=r"(?s)topics cannot be read at 127.0.0.1:1.*sasl.password"):
        consumer.fill()
    with pytest.raises(SinkError, match=r"(?s)messages cannot be written at 127.0.0.1:1.*sasl.password"):
        producer.check()
    consumer.close()


def test_each_lost_broker_is_logged_once_a_minute_and_kind_of_failure(caplog: pytest.LogCaptureFixture) -> None:
    """Each client retries each broker up to ten times a second, and librdkafka logs each failure."""
    times = {"reconnect.backoff.ms": "10", "reconnect.backoff.max.ms": "10"}
    producers = [KafkaProducer({"bootstrap.servers": "127.0.0.1:1,127.0.0.1:2", **times}) for _ in range(3)]
    failures: FailureFilter = next(found for found in LOGGER.filters if isinstance(found, FailureFilter))
    failures.clear()
    counted = count_of_failures(failures)
    deadline = time.monotonic() + 30
    while count_of_failures(failures) < counted + 12 and time.monotonic() < deadline:
        for producer in producers:
            producer.check()
        time.sleep(0.05)
    lines = [record.getMessage() for record in caplog.records if "Connection refused" in record.getMessage()]
    assert len(lines) == 2, lines
    assert "127.0.0.1:1" in lines[0] + lines[1]
    assert "127.0.0.1:2" in lines[0] + lines[1]
    assert count_of_failures(failures) >= counted + 12


def count_of_failures(failures: FailureFilter) -> int:
    return sum(throttle.count for throttle in failures.throttles.values())


def logged(*texts: str, seconds: float) -> list[str]:
    """Return the lines that remain of failures with these texts, which follow each other in that time."""
    clock = itertools.count(0.0, seconds)
    failures = FailureFilter(clock=lambda: next(clock))
    lines = []
    for text in texts:
        record = logging.LogRecord(
            "kafka", logging.ERROR, "", 0, "%s [%s] %s", ("FAIL", "rdkafka#producer-1", text), None
        )
        if failures.filter(record):
            lines.append(record.getMessage())
    return lines


def failed(host: str, reason: str, ms: int = 1) -> str:
    return f"[thrd:{host}/1]: {host}/1: Connect to ipv4#{host} failed: {reason} (after {ms}ms in state CONNECT)"


def test_the_line_of_the_next_minute_has_the_number_of_failures() -> None:
    lines = logged(*[failed("b1:9092", "Connection refused", number) for number in range(5)], seconds=25)
    assert [line.rpartition("CONNECT)")[2] for line in lines] == [
        "",
        " (4 such failures so far. One per minute is logged)",
    ]


def test_failures_of_another_kind_are_logged_at_once() -> None:
    refused, timed_out = failed("a:1", "Connection refused"), failed("a:1", "Operation timed out")
    assert len(logged(refused, timed_out, refused, timed_out, seconds=1)) == 2


def test_each_broker_is_named_and_a_large_cluster_has_few_lines() -> None:
    assert len(logged(failed("a:1", "Connection refused"), failed("b:2", "Connection refused"), seconds=1)) == 2
    brokers = [failed(f"b{number}:9092", "Connection refused") for number in range(1000)]
    assert len(logged(*brokers, *brokers, seconds=0)) == 101


def test_other_lines_of_librdkafka_are_not_counted() -> None:
    record = logging.LogRecord("kafka", logging.WARNING, "", 0, "%s [%s] %s", ("CONFWARN", "c", "text"), None)
    failures = FailureFilter()
    assert [failures.filter(record) for _ in range(3)] == [True, True, True]
