from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import httpx
import pytest

from penstock.cli.access.connection import connect
from penstock.cli.client import RestClient
from penstock.cli.errors import MasterUnreachable, RequestFailed, UsageError
from penstock.rest.server import RestServer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.rest.fake_gateway import FakeGateway


def answering(response: httpx.Response) -> RestClient:
    return RestClient("http://x", transport=httpx.MockTransport(lambda _: response))


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(200, text="<html>Some other server</html>"),
        httpx.Response(200, json={"hello": "world"}),
        httpx.Response(200, json=[1]),
        httpx.Response(502, text="Bad Gateway"),
    ],
)
def test_another_server_at_the_url_is_reported(response: httpx.Response) -> None:
    with pytest.raises(MasterUnreachable, match="the server at http://x is not a JobManager"):
        answering(response).overview()


def test_a_read_request_is_retried_if_its_connection_was_closed() -> None:
    requests: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request.method)
        if len(requests) == 1:
            raise httpx.RemoteProtocolError("Server disconnected without sending a response.")
        return httpx.Response(200, json={"status": "RUNNING"})

    client = RestClient("http://x", transport=httpx.MockTransport(answer))
    assert client.state("j") == "RUNNING"
    assert requests == ["GET", "GET"]
    requests.clear()
    with pytest.raises(MasterUnreachable, match="disconnected"):
        client.run_program("p.py", {})
    assert requests == ["POST"]


def test_refusals_keep_code_and_remedy() -> None:
    response = httpx.Response(
        409, json={"errors": ["job is FAILED", "remedy: wait"]}, headers={"X-Penstock-Error": "CONFLICT"}
    )
    with pytest.raises(RequestFailed) as caught:
        answering(response).cancel("j")
    error = caught.value
    assert (error.message, error.remedy, error.code, error.status) == ("job is FAILED", "wait", "CONFLICT", 409)


def test_error_responses_in_flinks_shape_are_understood() -> None:
    with pytest.raises(RequestFailed, match="Job could not be found"):
        answering(httpx.Response(404, json={"errors": ["Job could not be found"]})).state("j")


def test_a_missing_answer_is_reported() -> None:
    def late(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("timed out", request=request)

    with pytest.raises(MasterUnreachable, match="no response in time"):
        RestClient("x:8081", transport=httpx.MockTransport(late)).overview()


@pytest.mark.parametrize("url", ["http://[", "http://no such host", "x:abc"])
def test_an_invalid_url_is_an_error_of_the_same_kind(url: str) -> None:
    with pytest.raises(MasterUnreachable):
        RestClient(url).overview()


def test_a_token_is_sent(gateway: FakeGateway, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("s3cret\n")
    with RestServer(gateway, port=0, token_file=str(token_file)) as server:
        assert connect(server.url, token_file).overview().slots_total == 8
        with pytest.raises(RequestFailed, match="this API requires a token"):
            connect(server.url, None).overview()


def test_a_missing_token_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        connect("x", tmp_path / "none")


def test_job_ids_cannot_reach_other_paths() -> None:
    requests: list[str] = []

    def record(request: httpx.Request) -> httpx.Response:
        requests.append(request.url.raw_path.decode())
        return httpx.Response(200, json={"status": "RUNNING"})

    RestClient("x", transport=httpx.MockTransport(record)).state("../cluster?x=")
    assert requests == ["/jobs/..%2Fcluster%3Fx%3D/status"]


def test_connections_of_many_threads_are_kept() -> None:
    """httpcore closes connections above a limit, even one that a thread has just received: `Bad file descriptor`."""
    threads, connections = 40, []
    together = threading.Barrier(threads)

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            connections.append(self.client_address)

        def do_GET(self) -> None:
            together.wait(10)
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        request_queue_size = threads

    with Server(("127.0.0.1", 0), Answer) as server, ThreadPoolExecutor(threads) as pool:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        client = RestClient(f"http://127.0.0.1:{server.server_port}")
        for _ in range(3):
            list(pool.map(lambda _: client._http.get("/"), range(threads)))
        client.close()
        server.shutdown()
    assert len(connections) == threads


def test_a_jobmanager_that_runs_one_job_accepts_no_programs() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        return httpx.Response(404, json={"errors": ["Not Found"]})

    with pytest.raises(RequestFailed, match="does not accept programs") as refused:
        RestClient("http://master", transport=httpx.MockTransport(refuse)).send_program(b"", {}, 1.0, collects=False)
    assert "penstock session" in refused.value.remedy
