"""Resources that a client without a token can occupy: little memory and few connections, for a short time."""

from __future__ import annotations

import logging
import resource
import socket
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from penstock.common.system.open_files import max_unauthenticated, raise_limit
from penstock.rest.body_limit import MAX_BODY_BYTES, MAX_TOKEN_BODY_BYTES
from penstock.rest.server import RestServer
from penstock.rest.transport.connections import Connections

if TYPE_CHECKING:
    from tests.unit.rest.fake_gateway import FakeGateway


@pytest.fixture
def server(gateway: FakeGateway, tmp_path: Path) -> Iterator[RestServer]:
    token = tmp_path / "token"
    token.write_text("s3cret")
    with RestServer(gateway, "127.0.0.1", 0, str(token), connections=Connections(20, 0.3)) as server:
        yield server


@pytest.fixture
def patient(gateway: FakeGateway, tmp_path: Path) -> Iterator[RestServer]:
    """Start a server that gives clients enough time on a busy machine."""
    token = tmp_path / "token"
    token.write_text("s3cret")
    with RestServer(gateway, "127.0.0.1", 0, str(token), connections=Connections(20, 30)) as server:
        yield server


def connected(server: RestServer) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.settimeout(30)
    return connection


def answer(connection: socket.socket) -> bytes:
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionError:
        pass
    return received


@pytest.mark.parametrize("path", ["/login", "/logout", "/jobs/x/savepoints", "/v1/programs", "/healthz"])
def test_a_large_body_is_refused_before_it_is_read(patient: RestServer, path: str) -> None:
    """The header announces 3 GB, and the client sends only the header."""
    connection = connected(patient)
    connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000000\r\n\r\n".encode())
    assert connection.recv(65536).split()[1] == b"413"


def test_a_body_of_unknown_size_is_read_up_to_the_limit(patient: RestServer) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(6):
            yield b" " * 1024

    found = httpx.post(f"{patient.url}/login", content=parts(), headers={"Content-Type": "application/json"})
    assert found.status_code == 413
    assert "more than 4096 bytes" in found.json()["errors"][0]
    assert found.headers["X-Penstock-Error"] == "TOO_LARGE"
    assert MAX_TOKEN_BODY_BYTES < MAX_BODY_BYTES


def test_silent_connections_are_closed(server: RestServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        began = time.monotonic()
        silent = [connected(server) for _ in range(10)]
        for connection in silent:
            assert answer(connection) == b""
        assert time.monotonic() - began < 3
    assert len([record for record in caplog.records if "closes the connection" in record.message]) == 1


@pytest.mark.parametrize(
    "beginning",
    [
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{",
    ],
)
def test_half_a_request_does_not_keep_a_connection_open(server: RestServer, beginning: bytes) -> None:
    connection = connected(server)
    connection.sendall(beginning)
    assert b" 200 " not in answer(connection)


def test_a_header_sent_byte_by_byte_has_the_same_timeout(server: RestServer) -> None:
    connection = connected(server)
    began = time.monotonic()
    try:
        for byte in b"GET /healthz HTTP/1.1\r\nX-Slow: " + b"a" * 100:
            connection.send(bytes([byte]))
            time.sleep(0.02)
    except ConnectionError:
        pass
    assert time.monotonic() - began < 1.5


def test_a_keep_alive_connection_remains_open(server: RestServer) -> None:
    with httpx.Client() as client:
        assert client.get(f"{server.url}/healthz").status_code == 200
        time.sleep(0.5)
        assert client.get(f"{server.url}/healthz").status_code == 200
        connection = connected(server)
        for _ in range(2):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = HTTPResponse(connection)
            answer.begin()
            assert answer.status == 200
            assert len(answer.read()) == int(answer.headers["Content-Length"])
            time.sleep(0.4)


def test_many_silent_connections_do_not_block_requests(gateway: FakeGateway) -> None:
    with RestServer(gateway, "127.0.0.1", 0, connections=Connections(20, 30)) as server:
        silent = [connected(server) for _ in range(40)]
        for _ in range(2):
            assert httpx.get(f"{server.url}/healthz").status_code == 200
        open_ones = 0
        for connection in silent:
            connection.settimeout(0.01)
            try:
                connection.recv(1)
            except TimeoutError:
                open_ones += 1
            except ConnectionError:
                pass
            connection.close()
        assert open_ones <= 20


def test_connections_without_a_token_may_use_a_share_of_the_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert (max_unauthenticated(1024), max_unauthenticated(100)) == (256, 100)
    requests: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: requests.append(limits))
    assert raise_limit() == 4096
    assert requests == [(4096, 4096)]
