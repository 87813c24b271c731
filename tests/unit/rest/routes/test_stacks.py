"""Thread dumps and flame graphs over REST, in Flink's shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.rest.fake_gateway import JOB_ID, OLD_ID

if TYPE_CHECKING:
    from tests.unit.rest.asgi_client import AsgiClient

GRAPH = f"/jobs/{JOB_ID}/vertices/{'0' * 32}/flamegraph?seconds=0.1"


def test_a_thread_dump_names_the_subtask_and_lists_the_innermost_frame_first(client: AsgiClient) -> None:
    first = client.get("/taskmanagers/tm-0/thread-dump").json()["threadInfos"][0]
    assert first == {
        "threadName": "MainThread",
        "stringifiedThreadInfo": '"MainThread" (vertex 0 #0)\n\tat app.parse:7\n\tat app.main:1\n\n',
    }


def test_a_flame_graph_adds_up_to_all_samples(client: AsgiClient) -> None:
    found = client.get(f"{GRAPH}&subtaskindex=0").json()
    assert found["endTimestamp"] > 0
    [thread] = found["root"]["children"]
    [main] = thread["children"]
    assert (found["root"]["value"], thread["name"], main["value"]) == (42, "MainThread", 42)
    assert main["children"] == [
        {"name": "app.parse:7", "value": 30, "children": []},
        {"name": "app.wait:9", "value": 12, "children": []},
    ]


@pytest.mark.parametrize(("kind", "seen"), [("on_cpu", "parse:7 30"), ("off_cpu", "wait:9 12")])
def test_running_and_waiting_samples_are_requested_separately(client: AsgiClient, kind: str, seen: str) -> None:
    answer = client.get(f"{GRAPH}&subtaskindex=0&type={kind}&format=folded")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text == f"MainThread;app.main:1;app.{seen}\n"


def test_all_taskmanagers_of_the_vertex_are_sampled(client: AsgiClient) -> None:
    # the two TaskManagers of the fake return the same samples
    assert client.get(GRAPH).json()["root"]["value"] == 2 * 50


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/taskmanagers/tm-9/thread-dump", 404),
        (f"{GRAPH}&subtaskindex=7", 404),
        (GRAPH.replace(JOB_ID, "f" * 32), 404),
        (GRAPH.replace("0.1", "61"), 400),
        (f"{GRAPH}&hertz=100000", 400),
        (f"{GRAPH}&type=odd", 400),
    ],
)
def test_an_unknown_vertex_or_too_many_samples_are_refused(client: AsgiClient, path: str, status: int) -> None:
    assert client.get(path).status_code == status


def test_an_ended_job_has_an_empty_graph(client: AsgiClient) -> None:
    vertices = client.get(f"/jobs/{OLD_ID}").json()["vertices"]
    for vertex in vertices:
        path = f"/jobs/{OLD_ID}/vertices/{vertex['id']}/flamegraph?seconds=0.1"
        assert client.get(path).json()["root"] == {"name": "root", "value": 0, "children": []}


def test_the_process_of_the_program_has_a_thread_dump_and_a_flame_graph(client: AsgiClient) -> None:
    dump = client.get(f"/jobs/{JOB_ID}/thread-dump").json()["threadInfos"]
    assert "MainThread" in {thread["threadName"] for thread in dump}
    assert client.get(f"/jobs/{JOB_ID}/flamegraph?seconds=0.1").json()["root"]["value"] > 0
    assert "MainThread;" in client.get(f"/jobs/{JOB_ID}/flamegraph?seconds=0.1&format=folded").text


@pytest.mark.parametrize("path", ["thread-dump", "flamegraph?seconds=0.1"])
def test_an_ended_program_has_no_process(client: AsgiClient, path: str) -> None:
    answer = client.get(f"/jobs/{OLD_ID}/{path}")
    assert answer.status_code == 409
    assert "no process runs its program" in answer.text
    assert client.get(f"/jobs/{'f' * 32}/{path}").status_code == 404
