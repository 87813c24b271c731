"""The REST API of the autoscaler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.rest.fake_gateway import JOB_ID

if TYPE_CHECKING:
    from tests.unit.rest.asgi_client import AsgiClient


def test_the_wanted_parallelism_and_the_decisions_are_shown(client: AsgiClient) -> None:
    found = client.get(f"/jobs/{JOB_ID}/autoscaler").json()
    assert {key: found[key] for key in ("mode", "current", "wanted", "slotsAvailable", "reason")} == {
        "mode": "active",
        "current": 2,
        "wanted": 4,
        "slotsAvailable": 2,
        "reason": "WAITING_FOR_SLOTS",
    }
    [decision] = found["decisions"]
    assert (decision["count"], decision["rescales"], decision["inputs"][0]["busy"]) == (2, False, 0.9)


def test_the_number_of_decisions_can_be_limited(client: AsgiClient) -> None:
    found = client.get(f"/jobs/{JOB_ID}/autoscaler?limit=0").json()
    assert (found["requested"], found["decisions"]) == (2, [])
    assert client.get(f"/jobs/{JOB_ID}/autoscaler?limit=-1").status_code == 400


def test_the_recording_is_a_file_of_json_lines(client: AsgiClient) -> None:
    answer = client.get(f"/jobs/{JOB_ID}/autoscaler/recording")
    assert answer.headers["content-type"].startswith("application/jsonl")
    assert answer.headers["content-disposition"].startswith('attachment; filename="autoscaler-')
    assert answer.text == '{"autoscaler": 1}\n{"sample": {}}\n'
