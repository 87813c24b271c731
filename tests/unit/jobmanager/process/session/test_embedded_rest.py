"""REST of `python job.py`: its server starts with the first client."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.cli.client import RestClient
from penstock.common.configuration import Configuration
from penstock.common.credentials.local_token import find_token
from penstock.jobmanager.process.session import embedded_rest
from penstock.jobmanager.process.session.embedded import LocalClusterProvider
from penstock.jobmanager.process.session.embedded_rest import EmbeddedRest
from penstock.jobmanager.process.session.session import Session
from penstock.rest.transport.listener import Listener

PROGRAM = """
import sys
from penstock.common.configuration import Configuration
from penstock.datastream import StreamExecutionEnvironment

settings = Configuration({"penstock.runner": "in-process", "rest.port": "0"})
env = StreamExecutionEnvironment.get_execution_environment(settings)
env.from_collection([1, 2]).print()
env.execute()
print(sorted({"uvicorn", "fastapi", "pydantic"} & set(sys.modules)))
"""


@pytest.fixture
def rest() -> Iterator[EmbeddedRest]:
    rest = EmbeddedRest(Session(LocalClusterProvider()), "")
    yield rest
    rest.stop(0.0)


OTHERS: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def others() -> None:
    """Remember the servers of other tests in this process."""
    OTHERS.clear()
    OTHERS.update(threading.enumerate())


def is_serving() -> bool:
    return any(thread.name == "rest-server" for thread in set(threading.enumerate()) - OTHERS)


def test_a_job_without_clients_does_not_import_the_server(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(PROGRAM)
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert (ended.stdout.splitlines()[-1:], ended.stderr) == (["[]"], "")


def test_the_first_client_starts_the_server(rest: EmbeddedRest) -> None:
    rest.start(Configuration({"rest.port": "0"}))
    rest.wait()
    assert not is_serving()
    assert httpx.get(f"{rest.url}/jobs", timeout=30).status_code == 401
    assert is_serving()
    assert RestClient(rest.url).jobs() == []


def test_the_server_starts_without_a_client_after_a_while(rest: EmbeddedRest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_rest, "SERVE_AFTER_S", 0.01)
    rest.start(Configuration({"rest.port": "0"}))
    deadline = time.monotonic() + 30
    while not is_serving():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_stop_before_the_first_client_closes_the_port_and_removes_the_token(rest: EmbeddedRest) -> None:
    rest.start(Configuration({"rest.port": "0"}))
    url, port = rest.url, rest.port
    assert find_token(url) is not None
    rest.stop(0.0)
    assert (rest.url, rest.port) == ("", -1)
    assert find_token(url) is None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    assert not is_serving()


def test_a_disabled_api_has_no_address(rest: EmbeddedRest) -> None:
    rest.start(Configuration({"rest.port": "-1"}))
    assert (rest.url, rest.port) == ("", -1)


def test_a_port_in_use_is_replaced_by_a_free_one() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        listener = Listener("127.0.0.1", other.getsockname()[1])
        assert listener.port != other.getsockname()[1]
    listener.close()
    assert not listener.wait_for_client(30)
    assert listener.socket.fileno() == -1
