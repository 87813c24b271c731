"""Logs over REST: in Flink's shapes, and in parts for clients that follow them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.rest.routes.logs import PART_BYTES
from tests.unit.rest.fake_gateway import LOG, START

if TYPE_CHECKING:
    from tests.unit.rest.asgi_client import AsgiClient
    from tests.unit.rest.fake_gateway import FakeGateway


def test_logs_are_listed_with_their_sizes(client: AsgiClient) -> None:
    assert client.get("/taskmanagers/tm-0/logs").json() == {
        "logs": [
            {"name": "taskmanager.log", "size": len(LOG), "mtime": START},
            {"name": "taskmanager.out", "size": 8, "mtime": START},
        ]
    }
    assert [log["name"] for log in client.get("/jobmanager/logs").json()["logs"]] == ["jobmanager.log"]


@pytest.mark.parametrize("path", ["log", "logs/taskmanager.log"])
def test_a_log_is_plain_text(client: AsgiClient, path: str) -> None:
    answer = client.get(f"/taskmanagers/tm-0/{path}")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.content == LOG


def test_stdout_is_a_separate_file(client: AsgiClient) -> None:
    assert client.get("/taskmanagers/tm-0/stdout").text == "printed\n"


def test_a_long_log_is_served_completely(client: AsgiClient, gateway: FakeGateway) -> None:
    gateway.log_files["tm-0"]["taskmanager.log"] = text = b"0123456789abcde\n" * (PART_BYTES // 5)
    assert client.get("/taskmanagers/tm-0/log").content == text


def test_a_client_that_follows_receives_the_next_position(client: AsgiClient, gateway: FakeGateway) -> None:
    first = client.get("/taskmanagers/tm-0/log?from=-100")
    assert first.content == LOG[-100:]
    end = int(first.headers["X-Penstock-Log-End"])
    assert end == len(LOG)
    gateway.log_files["tm-0"]["taskmanager.log"] += b"more\n"
    assert client.get(f"/taskmanagers/tm-0/log?from={end}").text == "more\n"


@pytest.mark.parametrize("path", ["/taskmanagers/tm-9/log", "/taskmanagers/tm-9/logs", "/taskmanagers/tm-0/logs/../x"])
def test_a_missing_log_is_not_found(client: AsgiClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_a_standalone_program_records_no_stdout(client: AsgiClient) -> None:
    answer = client.get("/jobmanager/stdout")
    assert answer.status_code == 404
    assert "python job.py" in answer.text
