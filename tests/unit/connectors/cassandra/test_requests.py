"""Errors that are retried and errors that are not, timestamps of writes, and a missing extra."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
from cassandra import AuthenticationFailed, InvalidRequest, OperationTimedOut, Unauthorized, Unavailable, WriteTimeout
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionShutdown
from cassandra.pool import NoConnectionsAvailable

from penstock.common.errors import InvalidJob
from penstock.connectors.cassandra.cluster import is_lost, message_of, remedy
from penstock.connectors.cassandra.requests import Clock, Pauses
from penstock.datastream.connectors.cassandra import CassandraTableSink, ConsistencyLevel, MapperOptions


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (OperationTimedOut(), True),
        (Unavailable("too few", consistency=6, required_replicas=2, alive_replicas=1), True),
        (WriteTimeout("late", consistency=6, required_responses=2, received_responses=1, write_type=0), True),
        (ConnectionShutdown("gone"), True),
        (NoConnectionsAvailable(), True),
        (ConnectionResetError(), True),
        (NoHostAvailable("none", {}), True),
        (NoHostAvailable("none", {"a": ConnectionRefusedError(), "b": AuthenticationFailed("no")}), True),
        (NoHostAvailable("none", {"a": AuthenticationFailed("no")}), False),
        (AuthenticationFailed("no"), False),
        (InvalidRequest("a key is missing"), False),
        (Unauthorized("User ann has no MODIFY permission"), False),
        (ValueError("?"), False),
    ],
)
def test_a_lost_server_is_distinguished_from_a_wrong_row(error: Exception, lost: bool) -> None:
    assert is_lost(error) is lost
    assert len(remedy(error, message_of(error))) > 20


def test_an_error_lists_the_errors_of_all_hosts_in_one_line() -> None:
    error = NoHostAvailable("Unable to connect", {"10.0.0.1": OSError("refused"), "10.0.0.2": OSError("no route")})
    assert message_of(error) == "10.0.0.1: refused; 10.0.0.2: no route"


def test_timestamps_increase_even_if_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    first = clock.take(1_000_000)
    assert clock.take(1) == first + 1_000_000
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert clock.take(5) == first + 1_000_001
    assert clock.take(1) == first + 1_000_006


def test_retries_end_after_a_time_without_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", sleep)
    pauses = Pauses(5.0)
    while now <= 5.0:
        assert pauses.wait()
    assert not pauses.wait()
    pauses.restart()
    assert pauses.wait()


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cassandra", None)
    with pytest.raises(InvalidJob, match="needs cassandra") as caught:
        CassandraTableSink("localhost", "w.means", ["id"])
    assert "penstock-streaming[cassandra]" in str(caught.value)


@pytest.mark.parametrize("level", [ConsistencyLevel.SERIAL, "QUORUM", 1])
def test_the_consistency_must_be_valid_for_writes(level: Any) -> None:
    with pytest.raises(InvalidJob, match="not a consistency level of writes"):
        MapperOptions().consistency_level(level)
