"""Sockets that send pieces of lines, too much data, or bytes that are not text."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from penstock.common.errors import InvalidJob, PenstockError, RecordFormatError, SourceError
from penstock.connectors.simple import socket as module
from penstock.connectors.simple.socket import SocketTextSource


class Collected:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def collect(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def read(server: socket.socket, *pieces: bytes, delimiter: str = "\n") -> list[str]:
    def send() -> None:
        connection, _ = server.accept()
        with connection:
            try:
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(0.02)
            except OSError:
                pass

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    found = Collected()
    try:
        SocketTextSource(*server.getsockname(), delimiter=delimiter).run(found)
    finally:
        thread.join(10)
    return found.lines


def test_lines_are_complete_however_they_were_sent(server: socket.socket) -> None:
    assert read(server, "ä".encode()[:1], "ä".encode()[1:] + b"\nb", b"\r\n\n", b"c") == ["ä", "b", "", "c"]
    assert read(server, b"a<", b"e", b">b<e", b">", delimiter="<e>") == ["a", "b"]


def test_the_time_to_read_a_line_is_linear_in_its_length(server: socket.socket) -> None:
    started_at = time.monotonic()
    (line,) = read(server, *[b"x" * 1_000_000] * 30)
    assert len(line) == 30_000_000
    assert time.monotonic() - started_at < 5


def test_a_stream_without_a_delimiter_does_not_fill_the_memory(
    server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LONGEST", 1000)
    with pytest.raises(SourceError, match=r"has sent [\d,]+ bytes without a delimiter '\\n': b'xxx"):
        read(server, b"x" * 1001, b"x" * 1000)


def test_bytes_that_are_not_text_are_named(server: socket.socket) -> None:
    with pytest.raises(RecordFormatError, match=r"a line of the socket 127.0.0.1:\d+ is not UTF-8: .*b'\\xff'"):
        read(server, b"a\n\xff\nb\n")


def test_an_unreachable_server_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
    with pytest.raises(PenstockError, match=rf"{host}:{port} cannot be read: ConnectionRefusedError[\s\S]*max_retry"):
        SocketTextSource(host, port).run(Collected())
    with pytest.raises(InvalidJob, match="delimiter of a socket source is empty"):
        SocketTextSource(host, port, delimiter="")
