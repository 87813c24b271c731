from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

import httpx
import pytest

from penstock.rest import leader_proxy
from penstock.rest.leader_proxy import LeaderProxy
from penstock.rest.server import RestServer
from tests.unit.rest.fake_gateway import JOB_ID, FakeGateway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.rest.gateway import ClusterGateway


class Pair:
    """A leader, and a standby that passes requests on to `target`."""

    def __init__(self, token_file: str | None = None) -> None:
        self.gateway = FakeGateway()
        self.leader = RestServer(cast("ClusterGateway", self.gateway), "127.0.0.1", 0, token_file)
        self.leader.start()
        self.target: str | None = self.leader.url
        self.standby = RestServer(
            cast("ClusterGateway", FakeGateway()), "127.0.0.1", 0, token_file, leader=lambda: self.target
        )
        self.standby.start()

    def close(self) -> None:
        self.standby.stop()
        self.leader.stop()


@pytest.fixture
def pair() -> Iterator[Pair]:
    found = Pair()
    yield found
    found.close()


def test_a_standby_answers_with_the_answer_of_the_leader(pair: Pair) -> None:
    for path in ("/overview", f"/jobs/{JOB_ID}", "/v1/jobs", "/jobs/nowhere", "/openapi.json", "/"):
        direct, passed = (httpx.get(f"{url}{path}", timeout=60) for url in (pair.leader.url, pair.standby.url))
        assert passed.status_code == direct.status_code, path
        if path != f"/jobs/{JOB_ID}":  # contains the duration
            assert passed.content == direct.content, path
        assert passed.headers["content-type"] == direct.headers["content-type"]


def test_a_request_with_a_body_reaches_the_leader_once(pair: Pair) -> None:
    answer = httpx.post(
        f"{pair.standby.url}/jobs/{JOB_ID}/savepoints", json={"target-directory": "s3://b/x", "triggerId": "a" * 32}
    )
    assert answer.status_code == 202, answer.text
    assert answer.json() == {"request-id": "a" * 32}
    assert pair.gateway.operation("a" * 32) is not None


def test_probes_and_metrics_are_those_of_the_standby(pair: Pair) -> None:
    pair.target = "http://127.0.0.1:1"
    for path in ("/healthz", "/readyz", "/metrics"):
        assert httpx.get(f"{pair.standby.url}{path}").status_code == 200, path


@pytest.mark.parametrize("target", ["", "http://127.0.0.1:1"])
def test_without_a_leader_the_answer_is_503_with_the_time_of_a_retry(pair: Pair, target: str) -> None:
    pair.target = target
    answer = httpx.get(f"{pair.standby.url}/overview")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["x-penstock-error"] == "NO_LEADER"
    assert "remedy: repeat the request" in answer.json()["errors"][1]


def test_two_standbys_do_not_pass_a_request_back_and_forth(pair: Pair) -> None:
    pair.target = pair.standby.url
    answer = httpx.get(f"{pair.standby.url}/overview", timeout=10)
    assert answer.status_code == 503
    assert "the leader changes" in answer.json()["errors"][0]


def test_a_process_that_leads_answers_itself(pair: Pair) -> None:
    pair.target = None
    assert httpx.get(f"{pair.standby.url}/overview").status_code == 200


def test_a_request_target_cannot_change_the_host_of_the_leader(pair: Pair) -> None:
    host, port = pair.standby.address, pair.standby.port
    with socket.create_connection((host, port), timeout=10) as connection:
        connection.sendall(b"GET @127.0.0.1:1/overview HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = connection.makefile("rb").read()
    assert b" 400 " in answer.splitlines()[0]


def test_the_leader_checks_the_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret")
    pair = Pair(str(tmp_path / "token"))
    try:
        url = f"{pair.standby.url}/overview"
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, headers={"Authorization": "Bearer s3cret"}).status_code == 200
    finally:
        pair.close()


def test_requests_to_a_frozen_leader_end_when_another_process_leads(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system of a frozen process accepts connections, and nothing answers."""
    monkeypatch.setattr(leader_proxy, "_CHECK_S", 0.05)
    monkeypatch.setattr(leader_proxy, "_PATIENCE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0), backlog=200) as frozen:
        pair.target = f"http://127.0.0.1:{frozen.getsockname()[1]}"
        answers: list[tuple[int, str]] = []

        def request() -> None:
            answer = httpx.get(f"{pair.standby.url}/overview", timeout=30)
            answers.append((answer.status_code, answer.headers["x-penstock-error"]))

        waiting = [threading.Thread(target=request) for _ in range(3)]
        for thread in waiting:
            thread.start()
        time.sleep(0.5)
        assert not answers
        pair.target = pair.leader.url
        for thread in waiting:
            thread.join(20)
        assert answers == 3 * [(503, "LEADER_LOST")]
        assert httpx.get(f"{pair.standby.url}/overview", timeout=10).status_code == 200


def test_the_leader_does_not_take_a_part_of_a_body_for_the_whole() -> None:
    received = bytearray()
    closed = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def leader() -> None:
        connection, _ = listener.accept()
        with connection:
            while part := connection.recv(4096):
                received.extend(part)
        closed.set()

    threading.Thread(target=leader, daemon=True).start()
    messages: Iterator[dict[str, object]] = iter(
        [
            {"type": "http.request", "body": b"first half", "more_body": True},
            {"type": "http.disconnect"},
        ]
    )

    async def receive() -> dict[str, object]:
        return next(messages)

    async def send(message: object) -> None:
        raise AssertionError(message)

    async def app(*_: object) -> None:
        raise AssertionError

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/jars/upload",
        "query_string": b"",
        "headers": [(b"transfer-encoding", b"chunked")],
    }
    with listener:
        proxy = LeaderProxy(app, lambda: f"http://127.0.0.1:{listener.getsockname()[1]}")
        asyncio.run(proxy(scope, receive, send))
        assert closed.wait(10)
    assert b"first half" in received
    assert b"0\r\n\r\n" not in received
