"""The edges of a job over REST, and the last records on an edge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.common.stacks.edge_records import EdgeQuestion
from tests.unit.rest.fake_gateway import JOB_ID, OLD_ID, START

if TYPE_CHECKING:
    from tests.unit.rest.asgi_client import AsgiClient
    from tests.unit.rest.fake_gateway import FakeGateway

RECORDS = f"/jobs/{JOB_ID}/edges/records"


def test_edges_name_both_operators_and_the_side_output(client: AsgiClient) -> None:
    found = client.get(f"/jobs/{JOB_ID}/edges").json()["edges"]
    assert [edge["name"] for edge in found] == [
        "readings → Map",
        "Map → Window",
        "Map [invalid] → Sink: bad",
        "Window → Sink: files",
    ]
    assert found[2] == {
        "name": "Map [invalid] → Sink: bad",
        "uid": "map",
        "source": "Map",
        "sideOutput": "invalid",
        "targetUid": "bad",
        "target": "Sink: bad",
        "vertex": "0" * 32,
        "chained": False,
    }


def test_the_newest_records_of_all_taskmanagers_come_in_the_order_of_their_time(client: AsgiClient) -> None:
    assert client.get(f"{RECORDS}?edge=Map → Window&seconds=0.5").json() == {
        "edge": "Map → Window",
        "records": [
            {"seenAt": START + 10, "subtask": 1, "timestamp": None, "key": "'a'", "value": "{'a': 1}"},
            {"seenAt": START + 20, "subtask": 0, "timestamp": START, "key": None, "value": "{'a': 2}"},
        ],
    }
    assert [record["subtask"] for record in client.get(f"{RECORDS}?edge=Map → Window&limit=1").json()["records"]] == [0]


@pytest.mark.parametrize(
    ("edge", "uid", "side"),
    [
        ("Map -> Window", "map", None),
        ("map→win", "map", None),
        ("Map [invalid]", "map", "invalid"),
        ("map [invalid] → Sink: bad", "map", "invalid"),
        ("readings", "src", None),
        ("src", "src", None),
        ("Window", "win", None),
    ],
)
def test_an_edge_has_several_names(
    client: AsgiClient, gateway: FakeGateway, edge: str, uid: str, side: str | None
) -> None:
    assert client.get(f"{RECORDS}?edge={edge}&limit=7&seconds=0.5").status_code == 200
    assert gateway.questions == [EdgeQuestion(JOB_ID, uid, side, 7, 0.5)] * 2


@pytest.mark.parametrize("vertex", ["0", "0" * 32])
def test_a_vertex_with_several_outputs_is_refused_with_their_names(client: AsgiClient, vertex: str) -> None:
    answer = client.get(f"{RECORDS}?edge={vertex}")
    assert answer.status_code == 400
    assert "Map → Window; Map [invalid] → Sink: bad" in answer.text


def test_an_unknown_edge_is_refused_with_the_known_ones(client: AsgiClient) -> None:
    answer = client.get(f"{RECORDS}?edge=Map → Sort")
    assert answer.status_code == 404
    assert "its edges are: readings → Map; Map → Window" in answer.text


def test_a_job_that_does_not_run_has_no_records(client: AsgiClient) -> None:
    answer = client.get(f"/jobs/{OLD_ID}/edges/records?edge=Map → Window")
    assert answer.status_code == 409
    assert "is FAILED, so no record is on its edges" in answer.text


@pytest.mark.parametrize("limits", ["limit=0", "limit=101", "seconds=-1", "seconds=31"])
def test_requests_have_limits(client: AsgiClient, limits: str) -> None:
    assert client.get(f"{RECORDS}?edge=Window&{limits}").status_code == 400
