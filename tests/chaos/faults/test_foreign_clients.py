"""Foreign clients against a test server: they find its port, and send the expected messages."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.chaos.faults.foreign_clients import KINDS, ForeignClients, Listener, listeners


class Server:
    """A server that remembers the messages of each connection."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.received: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Close the socket, and wake the thread that waits in `accept`."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._receive, args=(connection,), daemon=True).start()

    def _receive(self, connection: socket.socket) -> None:
        received_bytes = b""
        with connection:
            connection.settimeout(0.3)
            try:
                while received := connection.recv(1 << 16):
                    received_bytes += received
            except OSError:
                pass
        self.received.append(received_bytes)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def own(server: Server) -> list[Listener]:
    return [listener for listener in listeners([os.getpid()]) if listener.port == server.port]


def test_a_listening_port_is_found_by_its_process(server: Server) -> None:
    assert [listener.host for listener in own(server)] == ["127.0.0.1"]
    assert own(server)[0].pid == os.getpid()


def test_a_closed_port_is_not_found(server: Server) -> None:
    server.close()
    assert own(server) == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "replay"])
def test_every_kind_is_accepted_and_sends_its_message(server: Server, kind: str) -> None:
    foreign_clients = ForeignClients(random.Random(3))
    visit = foreign_clients.visit(kind, own(server))
    assert visit.accepted == 1
    assert (visit.sent == 0) == (kind == "silence")
    foreign_clients.hang_up()


def test_no_connection_is_counted_on_a_closed_port(server: Server) -> None:
    found = own(server)
    server.close()
    assert ForeignClients(random.Random(3)).visit("garbage", found).accepted == 0


@pytest.mark.chaos  # needs the right to record the traffic, like the soak
def test_recorded_messages_are_repeated(server: Server) -> None:
    foreign_clients = ForeignClients(random.Random(3))
    with foreign_clients.listening({server.port}), socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"the password is swordfish")
        while not server.received:
            pass
    assert foreign_clients.captured[server.port] == [b"the password is swordfish"]
    assert foreign_clients.visit("replay", own(server)).sent == 25
    while len(server.received) < 2:
        pass
    assert server.received == [b"the password is swordfish"] * 2
