"""Missing, partial and late responses to bulks. Tests choose the answers of a fake server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson
import pytest

from penstock.common.errors import InvalidJob, SinkError
from penstock.connectors.core.sink import WriterContext
from penstock.connectors.opensearch.sink import OpenSearchSink

Answer = tuple[int, Any]
CONTEXT = WriterContext(0, 1, 0, "out", "job")


class Told:
    """A fake server that stores documents, or answers as the test configures."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.bulks: list[list[str]] = []
        self.otherwise: list[Callable[[list[str]], Answer | None]] = []
        self.refuse: Callable[[str], dict[str, Any] | None] = lambda identity: None
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = service.answer([orjson.loads(line) for line in body.splitlines()])
                content = answer if isinstance(answer, bytes) else orjson.dumps(answer)
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, lines: list[Any]) -> Answer:
        pairs = list(zip(lines[::2], lines[1::2], strict=True))
        ids = [head["index"]["_id"] for head, _ in pairs]
        self.bulks.append(ids)
        if self.otherwise:
            found = self.otherwise.pop(0)(ids)
            if found is not None:
                return found
        items = []
        for head, document in pairs:
            identity = head["index"]["_id"]
            error = self.refuse(identity)
            if error is None:
                self.documents[identity] = document["n"]
                items.append({"index": {"_id": identity, "status": 200}})
            else:
                items.append({"index": {"_id": identity, **error}})
        return 200, {"errors": any("error" in item["index"] for item in items), "items": items}


@pytest.fixture
def server() -> Iterator[Told]:
    made = Told()
    yield made
    made.server.shutdown()
    made.server.server_close()


def write(server: Told, *values: tuple[str, int], **options: Any) -> None:
    sink = OpenSearchSink(server.url, lambda pair: {"_id": pair[0], "n": pair[1]}, index="i", **options)
    writer = sink.create_writer(CONTEXT, [])
    try:
        writer.write(list(values), None, 0)
        writer.prepare_commit(1)
    finally:
        writer.close()


def rejected(times: int, who: str) -> Callable[[str], dict[str, Any] | None]:
    left = [times]

    def refuse(identity: str) -> dict[str, Any] | None:
        if identity != who or not left[0]:
            return None
        left[0] -= 1
        return {"status": 429, "error": {"type": "rejected_execution_exception", "reason": "queue"}}

    return refuse


def test_only_records_that_were_not_accepted_are_sent_again(server: Told) -> None:
    server.refuse = rejected(2, "b")
    write(server, ("a", 1), ("b", 2), ("c", 3))
    assert server.documents == {"a": 1, "b": 2, "c": 3}
    assert server.bulks == [["a", "b", "c"], ["b"], ["b"]]


def test_a_retried_write_never_overwrites_a_later_write(server: Told) -> None:
    server.refuse = rejected(1, "a")
    write(server, ("a", 1), ("b", 2), ("a", 3), batch_size=10)
    write(server, ("a", 4), ("a", 5), batch_size=1)
    assert server.documents == {"a": 5, "b": 2}
    assert server.bulks[0] == ["b", "a"], "what is replaced is not sent"


def test_bulks_are_bounded_in_actions_and_bytes(server: Told) -> None:
    write(server, *((f"k{n}", n) for n in range(5)), batch_size=2)
    assert [len(ids) for ids in server.bulks] == [2, 2, 1]
    server.bulks.clear()
    write(server, *((f"k{n}", n) for n in range(5)), batch_bytes=100)
    assert len(server.bulks) > 1


def test_a_bulk_that_is_too_large_is_sent_in_parts(server: Told) -> None:
    def too_large(ids: list[str]) -> Answer | None:
        return (413, b"") if len(ids) > 2 else None

    server.otherwise = [too_large] * 20
    write(server, *((f"k{n}", n) for n in range(7)))
    assert server.documents == {f"k{n}": n for n in range(7)}


def test_a_document_that_is_too_large_is_named(server: Told) -> None:
    server.otherwise = [lambda ids: (413, b"") if "big" in ids else None] * 20
    with pytest.raises(SinkError, match=r"document 'big' of index 'i' has .* bytes"):
        write(server, ("a", 1), ("big", 2))


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_server_is_retried(server: Told, status: int) -> None:
    server.otherwise = [lambda ids: (status, b"busy")] * 2
    write(server, ("a", 1))
    assert server.documents == {"a": 1}


def test_a_server_that_remains_busy_fails_the_job_with_its_message(server: Told) -> None:
    server.otherwise = [lambda ids: (503, b"no master")] * 100
    with pytest.raises(SinkError, match="returned the status 503: no master"):
        write(server, ("a", 1), patience=300)


@pytest.mark.parametrize(
    ("status", "content", "message"),
    [
        (200, b"<html>welcome</html>", "is not OpenSearch: '<html>"),
        (200, b'{"errors": false, "items": []}', "is not OpenSearch"),
        (401, b"who", "returned the status 401: who"),
        (403, b"no", "returned the status 403: no"),
        (404, b"nothing here", "returned the status 404"),
        (302, b"", "returned the status 302"),
    ],
)
def test_foreign_servers_and_refusals_fail_at_once(server: Told, status: int, content: bytes, message: str) -> None:
    server.otherwise = [lambda ids: (status, content)]
    with pytest.raises(SinkError, match=message) as error:
        write(server, ("a", 1))
    assert error.value.remedy
    assert len(server.bulks) == 1


def test_a_document_refused_by_the_mapping_is_named(server: Told) -> None:
    error = {"type": "mapper_parsing_exception", "reason": "failed", "caused_by": {"reason": "For input string"}}
    server.refuse = lambda identity: {"status": 400, "error": error} if identity == "b" else None
    with pytest.raises(
        SinkError, match=r"document 'b' of index 'i' is rejected: .* failed: For input string"
    ) as caught:
        write(server, ("a", 1), ("b", 2))
    assert "mapping" in caught.value.remedy


def test_hosts_are_used_in_turn(server: Told) -> None:
    other = Told()
    try:
        hosts = [server.url, other.url, "http://127.0.0.1:1"]
        sink = OpenSearchSink(hosts, lambda n: {"_id": str(n), "n": n}, index="i", batch_size=1)
        writer = sink.create_writer(CONTEXT, [])
        writer.write(list(range(6)), None, 0)
        writer.close()
    finally:
        other.server.shutdown()
        other.server.server_close()
    assert len(server.documents) >= 2
    assert len(other.documents) >= 2
    assert {**server.documents, **other.documents} == {str(n): n for n in range(6)}


@pytest.mark.parametrize("hosts", [[], "ftp://search", "http://job:secret@search:9200", "http://search:port"])
def test_invalid_hosts_are_refused_without_their_password(hosts: Any) -> None:
    with pytest.raises(InvalidJob) as error:
        OpenSearchSink(hosts, lambda record: None)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("search", "http://search:9200"),
        ("search:9201", "http://search:9201"),
        ("https://search", "https://search:443"),
        ("https://search:9200/behind/", "https://search:9200/behind"),
        ("http://[::1]", "http://[::1]:9200"),
    ],
)
def test_hosts_have_the_default_ports_of_the_official_clients(host: str, url: str) -> None:
    assert OpenSearchSink(host, lambda record: None).cluster.hosts == (url,)


def test_user_and_password_must_be_given_together() -> None:
    with pytest.raises(InvalidJob, match="belong together"):
        OpenSearchSink("search", lambda record: None, user="job")
    with pytest.raises(InvalidJob, match="batch_size=0"):
        OpenSearchSink("search", lambda record: None, batch_size=0)
