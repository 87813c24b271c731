from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

import httpx
import pytest

import penstock
from penstock.common.errors import ClusterError
from penstock.rest.server import RestServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.rest.gateway import ClusterGateway
    from tests.unit.rest.access.current import Current
    from tests.unit.rest.asgi_client import AsgiClient
    from tests.unit.rest.fake_gateway import FakeGateway


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    return path


@pytest.fixture(scope="module")
def named(current: Current) -> Iterator[RestServer]:
    """Start a server for all tests of the module that two further host names may be used for."""
    allowed = ["flink.example.com", "*.intern.example"]
    with RestServer(cast("ClusterGateway", current), "localhost", 0, allowed_hosts=allowed) as server:
        yield server


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("path", ["/overview", "/v1/jobs", "/metrics", "/openapi.json", "/nowhere"])
def test_a_server_with_a_token_requires_it_except_for_probes_and_page(guarded: AsgiClient, path: str) -> None:
    answer = guarded.get(path)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert "Authorization: Bearer <token>" in answer.json()["errors"][1]
    assert guarded.get(path, headers=bearer("wrong")).status_code == 401
    assert guarded.get(path, headers=bearer("s3cret")).status_code != 401


def test_probes_need_no_token(guarded: AsgiClient) -> None:
    assert guarded.get("/healthz").status_code == 200
    assert guarded.get("/readyz").status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://test"}, 200),
        ({"Origin": "https://flink.example", "X-Forwarded-Host": "flink.example"}, 200),
        ({}, 200),
    ],
)
def test_pages_of_other_sites_cannot_change_anything(client: AsgiClient, headers: dict[str, str], status: int) -> None:
    assert client.request("DELETE", "/cluster", headers=headers).status_code == status
    assert client.get("/overview", headers=headers).status_code == 200


def test_a_rotated_token_takes_effect_immediately(guarded: AsgiClient, tokens: tuple[Path, Path]) -> None:
    token_file = tokens[0]
    assert guarded.get("/overview", headers=bearer("s3cret")).status_code == 200
    token_file.unlink()
    token_file.write_text("another")
    assert guarded.get("/overview", headers=bearer("s3cret")).status_code == 401
    assert guarded.get("/overview", headers=bearer("another")).status_code == 200


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_a_missing_or_empty_token_file_refuses_every_client(
    gateway: FakeGateway, tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ClusterError, match=str(path)):
        RestServer(gateway, token_file=str(path))


def test_a_real_server_listens_on_any_port(gateway: FakeGateway) -> None:
    with RestServer(gateway, "localhost", 0) as server:
        assert server.port > 0
        assert httpx.get(f"{server.url}/v1/overview").json()["slots-total"] == 8
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/overview")
    server.stop()


def test_a_port_in_use_is_a_clear_error(gateway: FakeGateway) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ClusterError, match=rf"127\.0\.0\.1:{port}") as caught:
            RestServer(gateway, "127.0.0.1", port).start()
    assert "rest.port" in caught.value.remedy


def test_an_address_of_another_machine_is_a_clear_error(gateway: FakeGateway) -> None:
    with pytest.raises(ClusterError, match="no-such-host"):
        RestServer(gateway, "no-such-host.invalid", 0).start()


def test_two_servers_run_in_one_process(gateway: FakeGateway) -> None:
    with RestServer(gateway, port=0) as one, RestServer(gateway, port=0) as other:
        assert one.port != other.port
        assert httpx.get(f"{other.url}/healthz").status_code == 200


def test_many_clients_are_served_concurrently(gateway: FakeGateway) -> None:
    codes: list[int] = []
    with RestServer(gateway, port=0) as server:

        def ask() -> None:
            with httpx.Client() as client:
                codes.extend(client.get(f"{server.url}/jobs/overview").status_code for _ in range(10))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert codes == [200] * 80


def test_openapi_shows_every_path_once_with_tags(client: AsgiClient) -> None:
    schema = client.get("/openapi.json").json()
    assert "/jobs/{job_id}/savepoints" in schema["paths"]
    assert not [path for path in schema["paths"] if path.startswith("/v1")]
    untagged = [
        f"{method} {path}"
        for path, found in schema["paths"].items()
        for method, operation in found.items()
        if not operation.get("tags")
    ]
    assert not untagged
    assert schema["components"]["schemas"]["ClusterOverview"]["properties"]["slots-total"]["type"] == "integer"


def test_models_import_neither_the_engine_nor_the_web_framework() -> None:
    code = (
        "import sys, penstock.rest.models, penstock.rest.facts;"
        "print([m for m in sys.modules if m.split('.')[0] in ('fastapi', 'uvicorn', 'pyspark', 'pyarrow', 'numpy')"
        " or m.startswith(('penstock.jobmanager', 'penstock.taskmanager'))])"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(penstock.__file__).parents[1])}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_every_path_is_in_the_documentation(client: AsgiClient) -> None:
    page = (Path(__file__).parents[3] / "docs" / "rest.md").read_text()
    paths = client.get("/openapi.json").json()["paths"]
    last_words = {[word for word in path.split("/") if not word.startswith("{")][-1] for path in paths}
    assert not [word for word in last_words if word not in page]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8081", 200),
        ("dashboard.localhost", 200),
        ("127.0.0.1:8081", 200),
        ("10.1.2.3", 200),
        ("[::1]:8081", 200),
        (socket.gethostname().upper(), 200),
        ("flink.example.com", 200),
        ("a.b.intern.example:80", 200),
        ("evil.example", 403),
        ("intern.example.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example", 403),
        ("", 403),
    ],
)
def test_only_the_servers_own_host_names_are_answered(
    named: RestServer, current: Current, gateway: FakeGateway, host: str, status: int
) -> None:
    current.gateway = gateway
    answer = httpx.get(f"{named.url}/overview", headers={"Host": host})
    assert answer.status_code == status
    if status == 403:
        assert "security.rest.allowed-hosts" in answer.json()["errors"][1]
    assert httpx.get(f"{named.url}/healthz", headers={"Host": host}).status_code == 200


def test_a_server_with_a_token_accepts_any_host_name_unless_host_names_are_configured(
    gateway: FakeGateway, token_file: Path
) -> None:
    headers = {"Host": "job-rest.jobs.svc:8081", **bearer("s3cret")}
    with RestServer(gateway, "localhost", 0, str(token_file)) as server:
        assert httpx.get(f"{server.url}/overview", headers=headers).status_code == 200
        assert httpx.get(f"{server.url}/overview", headers={"Host": "evil.example"}).status_code == 401
    with RestServer(gateway, "localhost", 0, str(token_file), ["flink.example"]) as server:
        assert httpx.get(f"{server.url}/overview", headers=headers).status_code == 403


def test_configured_host_names_are_answered(gateway: FakeGateway) -> None:
    with RestServer(gateway, "localhost", 0, allowed_hosts=["*"]) as server:
        assert httpx.get(f"{server.url}/overview", headers={"Host": "whatever.example"}).status_code == 200


class HangingGateway:
    """A gateway whose list of jobs does not return until the test has ended."""

    def __init__(self, gateway: FakeGateway) -> None:
        self._gateway = gateway
        self.is_asked, self.is_over = threading.Event(), threading.Event()

    def jobs(self) -> list[object]:
        self.is_asked.set()
        self.is_over.wait(30)
        raise RuntimeError("the cluster has ended")

    def __getattr__(self, name: str) -> object:
        return getattr(self._gateway, name)


@pytest.mark.parametrize("is_released", [True, False])
def test_a_request_that_is_open_at_the_end_of_the_server_gets_503(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, *, is_released: bool
) -> None:
    monkeypatch.setattr("penstock.rest.server.STOP_SECONDS", 1.0)
    hanging = HangingGateway(gateway)
    answers: list[httpx.Response] = []
    with RestServer(cast("ClusterGateway", hanging), "localhost", 0) as server:
        client = threading.Thread(target=lambda: answers.append(httpx.get(f"{server.url}/jobs", timeout=20)))
        client.start()
        assert hanging.is_asked.wait(20)
        if is_released:
            threading.Timer(0.3, hanging.is_over.set).start()
        server.stop()
    client.join(20)
    hanging.is_over.set()
    assert answers[0].status_code == 503
    assert answers[0].json()["errors"] == [
        "this JobManager is shutting down",
        "remedy: repeat the request when it has restarted",
    ]
