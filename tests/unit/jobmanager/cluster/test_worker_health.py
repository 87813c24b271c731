"""What a worker answers to probes, and that strangers at its port do not keep it from doing so."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import httpx
import pytest

from penstock.jobmanager.cluster.worker_health import PATIENCE_S, WorkerHealth
from tests.unit.worker_answers import Told, answering


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def health(told: Told) -> Iterator[WorkerHealth]:
    with answering(told) as server:
        yield server


def ask(health: WorkerHealth, path: str) -> int:
    return httpx.get(f"http://127.0.0.1:{health.port}{path}", timeout=10).status_code


def test_alive_and_ready_are_two_things(health: WorkerHealth, told: Told) -> None:
    assert (ask(health, "/healthz"), ask(health, "/readyz")) == (200, 503)
    told.ready = True
    assert ask(health, "/readyz") == 200
    told.alive = False
    assert ask(health, "/healthz") == 503
    assert ask(health, "/other") == 404


def test_strangers_do_not_keep_it_from_answering(health: WorkerHealth) -> None:
    silent = [socket.create_connection(("127.0.0.1", health.port)) for _ in range(50)]
    for one in silent[:10]:
        one.sendall(b"\x16\x03\x01 no http at all\r\n\r\n")
    assert ask(health, "/healthz") == 200
    dripping, begun = silent[-1], time.monotonic()
    dripping.settimeout(PATIENCE_S * 5)
    dripping.sendall(b"GET /healthz HTTP/1.0\r\nX: ")
    assert dripping.recv(1) == b"", "it is hung up on"
    assert time.monotonic() - begun < PATIENCE_S * 4
    for one in silent:
        one.close()
