"""Strangers against a server of the test's own: they find its port, and are what they say."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.chaos.strangers import KINDS, Listener, Strangers, listeners


class Server:
    """Remembers what it is told, by connection."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.told: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Also for the thread that waits in `accept`."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._hear, args=(connection,), daemon=True).start()

    def _hear(self, connection: socket.socket) -> None:
        heard = b""
        with connection:
            connection.settimeout(0.3)
            try:
                while received := connection.recv(1 << 16):
                    heard += received
            except OSError:
                pass
        self.told.append(heard)


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


def test_a_port_that_was_closed_is_not_found(server: Server) -> None:
    server.close()
    assert own(server) == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "replay"])
def test_every_kind_is_accepted_and_says_what_it_should(server: Server, kind: str) -> None:
    strangers = Strangers(random.Random(3))
    visit = strangers.visit(kind, own(server))
    assert visit.accepted == 1
    assert (visit.sent == 0) == (kind == "silence")
    strangers.hang_up()


def test_nobody_is_counted_where_nobody_listens(server: Server) -> None:
    found = own(server)
    server.close()
    assert Strangers(random.Random(3)).visit("garbage", found).accepted == 0


@pytest.mark.chaos  # needs the right to listen to the wire, as the soak does
def test_what_others_said_is_repeated(server: Server) -> None:
    strangers = Strangers(random.Random(3))
    with strangers.listening({server.port}), socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"the password is swordfish")
        while not server.told:
            pass
    assert strangers.heard[server.port] == [b"the password is swordfish"]
    assert strangers.visit("replay", own(server)).sent == 25
    while len(server.told) < 2:
        pass
    assert server.told == [b"the password is swordfish"] * 2
