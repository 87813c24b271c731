"""The answers of a worker to probes, also while other clients hold connections to its port."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import httpx
import pytest

from penstock.jobmanager.cluster.worker_health import PATIENCE_S, WorkerHealth
from tests.unit.worker_answers import ProbeAnswers, answering


@pytest.fixture
def answers() -> ProbeAnswers:
    return ProbeAnswers()


@pytest.fixture
def health(answers: ProbeAnswers) -> Iterator[WorkerHealth]:
    with answering(answers) as server:
        yield server


def ask(health: WorkerHealth, path: str) -> int:
    return httpx.get(f"http://127.0.0.1:{health.port}{path}", timeout=10).status_code


def test_liveness_and_readiness_are_separate(health: WorkerHealth, answers: ProbeAnswers) -> None:
    assert (ask(health, "/healthz"), ask(health, "/readyz")) == (200, 503)
    answers.ready = True
    assert ask(health, "/readyz") == 200
    answers.alive = False
    assert ask(health, "/healthz") == 503
    assert ask(health, "/other") == 404


def test_silent_connections_do_not_block_probes(health: WorkerHealth) -> None:
    silent = [socket.create_connection(("127.0.0.1", health.port)) for _ in range(50)]
    for one in silent[:10]:
        one.sendall(b"\x16\x03\x01 no http at all\r\n\r\n")
    assert ask(health, "/healthz") == 200
    dripping, started = silent[-1], time.monotonic()
    dripping.settimeout(PATIENCE_S * 5)
    dripping.sendall(b"GET /healthz HTTP/1.0\r\nX: ")
    assert dripping.recv(1) == b"", "it is hung up on"
    assert time.monotonic() - started < PATIENCE_S * 4
    for one in silent:
        one.close()
