"""Endpoints that are none of Amazon's services, half answers, and refusals: each an error that says what to do."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.common.errors import SinkError, SourceError
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.aws import is_passing
from penstock.connectors.sink import WriterContext
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
        """Its URL; it answers everything with this."""
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def run() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65_536)
                    connection.sendall(answer)

        threading.Thread(target=run, daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}"

    yield serve
    for server in servers:
        server.close()


def answer(status: int, body: bytes, *headers: bytes) -> bytes:
    told = [b"HTTP/1.1 %d X" % status, b"Content-Length: %d" % len(body), b"Connection: close", *headers]
    return b"\r\n".join(told) + b"\r\n\r\n" + body


def ends(url: str) -> Iterator[Any]:
    """All four."""
    yield KinesisSource("s", SimpleStringSchema(), endpoint=url, patience=100)
    builder = KinesisStreamsSink.builder().set_stream_name("s").set_serialization_schema(SimpleStringSchema())
    builder = builder.set_partition_key_generator(PartitionKeyGenerator.random())
    sink = builder.set_kinesis_client_properties({"aws.endpoint": url, "aws.region": "us-east-1"}).build()
    object.__setattr__(sink.target, "patience_s", 0.1)
    yield sink
    yield SqsSource(f"{url}/1/orders", SimpleStringSchema(), region="us-east-1", patience=100)
    yield SqsSink(f"{url}/1/orders", SimpleStringSchema(), region="us-east-1", patience=100)


@pytest.mark.parametrize("body", [b"<html>please log in</html>", b"", b"[]", b"{}", b'"text"', b"null"])
def test_who_answers_but_is_no_service_is_told_at_the_start(serving: Any, body: bytes) -> None:
    url = serving(answer(200, body))
    for end in ends(url):
        with pytest.raises((SourceError, SinkError), match=r"what answers there is not (kinesis|sqs)"):
            end.validate()


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (answer(302, b"", b"Location: http://127.0.0.1:1/"), "302"),
        (answer(403, b"<html>proxy</html>"), "403"),
        (answer(500, b"oops"), "500"),
        (answer(400, b'{"__type": "ExpiredTokenException", "message": "x"}'), "the credentials are refused"),
        (answer(400, b'{"__type": "AccessDeniedException", "message": "x"}'), "a right is missing"),
        (answer(400, b'{"__type": "ThrottlingException", "message": "x"}'), "ThrottlingException"),
        (answer(200, b"x" * 10)[:-5], "answers by halves"),
        (b"", "ConnectionClosedError"),
    ],
)
def test_refusals_and_half_answers_are_errors_within_the_patience(serving: Any, told: bytes, expected: str) -> None:
    url = serving(told)
    for end in ends(url):
        begun = time.monotonic()
        with pytest.raises((SourceError, SinkError), match=expected):
            end.validate()
        assert time.monotonic() - begun < 5


def test_records_that_nobody_says_to_have_are_not_taken_for_sent(serving: Any) -> None:
    *_, sqs = ends(serving(answer(200, b"{}")))
    writer = sqs.create_writer(WriterContext(0, 1, 0, "out", "job"), [])
    writer.write(["a"], None, 0)
    with pytest.raises(SinkError, match="1 messages: no word of them"):
        writer.prepare_commit(1)
    writer.close()
    _, kinesis, *_ = ends(serving(answer(200, b'{"FailedRecordCount": 0, "Records": [{}]}')))
    writer = kinesis.create_writer(WriterContext(0, 1, 0, "out", "job"), [])
    writer.write(["a"], None, 0)
    with pytest.raises(SinkError, match="1 records"):
        writer.prepare_commit(1)
    writer.close()


def test_what_no_service_would_take_is_not_tried_again() -> None:
    from botocore.exceptions import ParamValidationError

    assert not is_passing(ParamValidationError(report="wrong"))
