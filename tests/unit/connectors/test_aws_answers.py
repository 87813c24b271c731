"""Endpoints that are not Amazon's services, incomplete responses, and refusals. Each is an error with a remedy."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.common.errors import SinkError, SourceError
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.core.aws import is_passing
from penstock.connectors.core.sink import WriterContext
from penstock.datastream.connectors.kinesis import KinesisSource, KinesisStreamsSink, PartitionKeyGenerator
from penstock.datastream.connectors.sqs import SqsSink, SqsSource


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")


@pytest.fixture
def serving() -> Iterator[Callable[[bytes], str]]:
    servers: list[socket.socket] = []

    def serve(answer: bytes) -> str:
        """Start a server that answers every request with `answer`, and return its URL."""
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def run() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    read_request(connection)
                    connection.sendall(answer)

        threading.Thread(target=run, daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}"

    yield serve
    for server in servers:
        server.close()


def read_request(connection: socket.socket) -> None:
    """Read one complete request. Closing a socket with unread bytes resets the connection, and the response is lost."""
    received = b""
    while b"\r\n\r\n" not in received and (part := connection.recv(65_536)):
        received += part
    headers, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", headers)
    missing = int(length[1]) - len(body) if length else 0
    while missing > 0 and (part := connection.recv(missing)):
        missing -= len(part)


def answer(status: int, body: bytes, *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 %d X" % status, b"Content-Length: %d" % len(body), b"Connection: close", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def ends(url: str) -> Iterator[Any]:
    """Yield a source and a sink of each service."""
    yield KinesisSource("s", SimpleStringSchema(), endpoint=url, patience=100)
    builder = KinesisStreamsSink.builder().set_stream_name("s").set_serialization_schema(SimpleStringSchema())
    builder = builder.set_partition_key_generator(PartitionKeyGenerator.random())
    sink = builder.set_kinesis_client_properties({"aws.endpoint": url, "aws.region": "us-east-1"}).build()
    object.__setattr__(sink.target, "patience_s", 0.1)
    yield sink
    yield SqsSource(f"{url}/1/orders", SimpleStringSchema(), region="us-east-1", patience=100)
    yield SqsSink(f"{url}/1/orders", SimpleStringSchema(), region="us-east-1", patience=100)


@pytest.mark.parametrize("body", [b"<html>please log in</html>", b"", b"[]", b"{}", b'"text"', b"null"])
def test_a_server_that_is_not_the_service_is_an_error_at_the_start(serving: Any, body: bytes) -> None:
    url = serving(answer(200, body))
    for end in ends(url):
        with pytest.raises((SourceError, SinkError), match=r"the server is not (kinesis|sqs)"):
            end.validate()


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (answer(302, b"", b"Location: http://127.0.0.1:1/"), "302"),
        (answer(403, b"<html>proxy</html>"), "403"),
        (answer(500, b"oops"), "500"),
        (answer(400, b'{"__type": "ExpiredTokenException", "message": "x"}'), "the credentials are refused"),
        (answer(400, b'{"__type": "AccessDeniedException", "message": "x"}'), "a right is missing"),
        (answer(400, b'{"__type": "ThrottlingException", "message": "x"}'), "ThrottlingException"),
        (answer(200, b"x" * 10)[:-5], "answer is incomplete"),
        (b"", "ConnectionClosedError"),
    ],
)
def test_refusals_and_incomplete_responses_are_errors_within_the_patience(
    serving: Any, response: bytes, expected: str
) -> None:
    url = serving(response)
    for end in ends(url):
        start = time.monotonic()
        with pytest.raises((SourceError, SinkError), match=expected):
            end.validate()
        assert time.monotonic() - start < 20  # each client needs about a second of CPU time


def test_unacknowledged_records_do_not_count_as_sent(serving: Any) -> None:
    *_, sqs = ends(serving(answer(200, b"{}")))
    writer = sqs.create_writer(WriterContext(0, 1, 0, "out", "job"), [])
    writer.write(["a"], None, 0)
    with pytest.raises(SinkError, match="1 of 1 rejected: without a reason"):
        writer.prepare_commit(1)
    writer.close()
    _, kinesis, *_ = ends(serving(answer(200, b'{"FailedRecordCount": 0, "Records": [{}]}')))
    writer = kinesis.create_writer(WriterContext(0, 1, 0, "out", "job"), [])
    writer.write(["a"], None, 0)
    with pytest.raises(SinkError, match="1 of 1 rejected"):
        writer.prepare_commit(1)
    writer.close()


def test_an_invalid_request_is_not_retried() -> None:
    from botocore.exceptions import ParamValidationError

    assert not is_passing(ParamValidationError(report="wrong"))
