"""The resource manager's port with silent connections."""

from __future__ import annotations

import logging
import resource
import socket

import pytest

from penstock.common.logs.throttle import EVERY_S
from penstock.jobmanager.cluster import sealed_server
from penstock.jobmanager.cluster.sealed_server import Peer, SealedServer


class Silent(SealedServer):
    def admit(self, peer: Peer, frame: bytes) -> str | None:
        return "is not known"

    def on_frame(self, peer: Peer, frame: bytes) -> None:
        pass

    def on_disconnected(self, peer: Peer) -> None:
        pass


def test_unauthenticated_clients_are_limited_in_open_files_and_log_lines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    server = Silent("127.0.0.1", 0, "k" * 32)
    server.start()
    host, _, port = server.address.rpartition(":")
    try:
        with caplog.at_level(logging.WARNING):
            peers = [socket.create_connection((host, int(port))) for _ in range(40)]
            for peer in peers[:24]:  # the oldest connections are closed for new ones
                peer.settimeout(5)
                received = b""
                while part := peer.recv(100):
                    received += part
            assert len(server._unauthenticated) <= 16
        assert len(caplog.records) == 1
        assert EVERY_S == 60
    finally:
        server.close()
        for peer in peers:
            peer.close()
    assert sealed_server.MAX_UNAUTHENTICATED == 1024
