"""Servers that hang, respond slowly, redirect, send Retry-After, or have an untrusted certificate."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.common.errors import InvalidJob, RecordFormatError, SourceError
from penstock.connectors.core.source import ReadBounds, ReaderContext
from penstock.connectors.http import request
from penstock.connectors.http import source as http
from penstock.datastream.connectors.http import HttpPollSource
from penstock.datastream.formats.json import JsonLinesFormat

FORMAT = JsonLinesFormat({"id": int})


class Raw:
    """A server that lets `answer` write to each connection, one connection after the other."""

    def __init__(self, answer: Callable[[socket.socket], None]) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.server.getsockname()[1]}/alerts"
        self.is_over = threading.Event()
        self._answer = answer
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while not self.is_over.is_set():
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._guarded, args=(connection,), daemon=True).start()

    def _guarded(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65_536)
                self._answer(connection)
            except OSError:
                pass

    def close(self) -> None:
        self.is_over.set()
        self.server.close()


@pytest.fixture
def serving() -> Iterator[Callable[[Callable[[socket.socket], None]], Raw]]:
    made: list[Raw] = []

    def serve(answer: Callable[[socket.socket], None]) -> Raw:
        made.append(Raw(answer))
        return made[-1]

    yield serve
    for server in made:
        server.close()


def _hang(connection: socket.socket) -> None:
    connection.recv(1)


def _half(connection: socket.socket) -> None:
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"id": 1}\n')


def _drip(begin: bytes) -> Callable[[socket.socket], None]:
    def drip(connection: socket.socket) -> None:
        connection.sendall(begin)
        while True:
            connection.sendall(b"a")
            time.sleep(0.02)

    return drip


@pytest.mark.parametrize(
    "answer",
    [
        _hang,
        _drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"),
        _drip(b"HTTP/1.1 200 OK\r\nX-Long: "),
        _drip(b""),
    ],
)
def test_a_response_that_does_not_end_is_an_error(serving: Any, answer: Callable[[socket.socket], None]) -> None:
    source = HttpPollSource(serving(answer).url, FORMAT, interval=1, timeout=300)
    started_at = time.monotonic()
    with pytest.raises(SourceError, match=r"did not send its complete response within 0\.3 s|RemoteProtocolError"):
        source.validate()
    assert time.monotonic() - started_at < 5


def test_an_incomplete_response_is_an_error(serving: Any) -> None:
    with pytest.raises(SourceError, match="RemoteProtocolError"):
        HttpPollSource(serving(_half).url, FORMAT, interval=1).validate()


def test_an_endless_response_does_not_fill_the_memory(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "_MOST_BYTES", 1_000_000)

    def flood(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b'{"id": 1}\n' * 1000)

    with pytest.raises(SourceError, match="has more than 1,000,000 bytes"):
        HttpPollSource(serving(flood).url, FORMAT, interval=1).validate()


class Site:
    """A server that returns `answers` (status, headers and body) in order, and then repeats the last one."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.requests: list[tuple[float, dict[str, str]]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests.append((time.monotonic(), dict(self.headers)))
                status, headers, body = site.answers.pop(0) if len(site.answers) > 1 else site.answers[0]
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


def _until(reader: Any, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline
        reader.read(ReadBounds())
        time.sleep(0.005)


def opened(source: HttpPollSource) -> Any:
    (split,) = source.create_enumerator().discover()
    return source.create_reader(ReaderContext(0, 1, "in")).open_split(split, None)


def test_retry_after_delays_the_next_request(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_PAUSE_S", 0.01)
    monkeypatch.setattr(http, "PATIENCE_S", 0.5)
    site.answers = [(429, {"Retry-After": "1"}, b""), (503, {"Retry-After": "1"}, b""), (200, {}, b'{"id": 1}')]
    reader = opened(HttpPollSource(f"http://127.0.0.1:{site.port}/", FORMAT, interval=1))
    _until(reader, lambda: len(site.requests) >= 3)  # pauses of 1 s, although the patience is 0.5 s
    times = [at for at, _ in site.requests]
    assert times[1] - times[0] >= 0.95
    assert times[2] - times[1] >= 0.95
    reader.close()


def test_retry_after_accepts_a_time() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert 90 < request._after_s(later) <= 100
    assert request._after_s("1000000") == 3600
    assert request._after_s("-5") == request._after_s("") == request._after_s("soon") == 0


def test_secrets_are_not_sent_to_the_server_of_a_redirect(site: Site, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    other = Site()
    try:
        other.answers = [(200, {}, b'{"id": 1}')]
        site.answers = [
            (302, {"Location": "/moved"}, b""),
            (302, {"Location": f"http://127.0.0.1:{other.port}/"}, b""),
        ]
        given = {"X-Api-Key": str(tmp_path / "token"), "Authorization": str(tmp_path / "token")}
        source = HttpPollSource(
            f"http://127.0.0.1:{site.port}/",
            FORMAT,
            interval=1,
            headers={"Cookie": "session=secret"},
            header_files=given,
        )
        source.validate()
    finally:
        other.close()
    assert [headers["X-Api-Key"] for _, headers in site.requests] == ["secret"] * 2
    ((_, sent),) = other.requests
    assert "secret" not in json.dumps(sent)


def test_a_circular_redirect_is_an_error(site: Site) -> None:
    site.answers = [(302, {"Location": "/"}, b"")]
    with pytest.raises(SourceError, match="redirects more than 10 times"):
        HttpPollSource(f"http://127.0.0.1:{site.port}/", FORMAT, interval=1).validate()
    site.answers = [(302, {"Location": "ftp://elsewhere/"}, b"")]
    with pytest.raises(SourceError, match="is not valid"):
        HttpPollSource(f"http://127.0.0.1:{site.port}/", FORMAT, interval=1).validate()


def test_an_untrusted_certificate_is_an_immediate_error(tmp_path: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", tmp_path / "key", "-out", tmp_path / "cert"], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    site = Site(tls)
    try:
        with pytest.raises(SourceError, match=r"certificate is not trusted[\s\S]*SSL_CERT_FILE"):
            HttpPollSource(f"https://localhost:{site.port}/", FORMAT, interval=1).validate()
    finally:
        site.close()


def _always(cursor: Any, record: Any) -> Any:
    return cursor


def test_a_cursor_must_be_a_json_value(site: Site) -> None:
    site.answers = [(200, {}, b'{"id": 7}')]
    url = f"http://127.0.0.1:{site.port}/?after={{cursor}}"
    source = HttpPollSource(url, FORMAT, interval=1, cursor=lambda row: np.int64(row["id"]), start=0)
    reader = opened(source)
    _until(reader, lambda: reader.position["cursor"] == 7)
    assert json.loads(json.dumps(reader.position))["cursor"] == 7
    reader.close()
    for cursor in (datetime(2026, 1, 1, tzinfo=UTC), b"7", float("nan"), {7}):
        reader = opened(HttpPollSource(url, FORMAT, interval=1, cursor=partial(_always, cursor), start=0))
        with pytest.raises(RecordFormatError, match=r"the cursor [\s\S]* let cursor= return text"):
            _until(reader, lambda: False)
        reader.close()


def test_an_invalid_url_is_refused() -> None:
    for url in ("http://[::1", "http://host:port/"):
        with pytest.raises(InvalidJob, match="is not a valid URL"):
            HttpPollSource(url, FORMAT, interval=1)
