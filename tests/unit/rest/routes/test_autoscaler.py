"""The REST API of the autoscaler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.rest.fake_gateway import JOB_ID, OLD_ID

if TYPE_CHECKING:
    import httpx

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


def put(client: AsgiClient, configuration: Any, name: str = "v1") -> httpx.Response:
    body = {"configuration": configuration, "configurationId": name}
    return client.request("PUT", f"/jobs/{JOB_ID}/autoscaler/configuration", json=body)


def test_the_keys_of_a_running_job_are_replaced(client: AsgiClient) -> None:
    answer = put(client, {"job.autoscaler.enabled": True, "job.autoscaler.utilization.target": 0.6})
    assert answer.status_code == 200
    found = client.get(f"/jobs/{JOB_ID}/autoscaler").json()
    assert found["configurationId"] == "v1"
    assert found["configuration"] == {"job.autoscaler.enabled": "true", "job.autoscaler.utilization.target": "0.6"}
    assert put(client, {}, "v2").json()["configuration"] == {}


@pytest.mark.parametrize(
    ("configuration", "named"),
    [
        ({"parallelism.default": 3}, "parallelism.default"),
        ({"penstock.autoscaler.mod": "active"}, "penstock.autoscaler.mode"),
        ({"job.autoscaler.utilization.target": "much"}, "job.autoscaler.utilization.target"),
        ({"job.autoscaler.utilization.target": 0.95}, "job.autoscaler.utilization.max"),
        ({"job.autoscaler.metrics.window": "1" * 1000}, "job.autoscaler.metrics.window"),
        ({"job.autoscaler.enabled": ["true"]}, "configuration"),
        ({f"job.autoscaler.{n}": 1 for n in range(101)}, "configuration"),
    ],
    ids=["another-key", "misspelt", "no-number", "contradiction", "long", "list", "many"],
)
def test_keys_that_are_not_valid_change_nothing(client: AsgiClient, configuration: Any, named: str) -> None:
    put(client, {"job.autoscaler.enabled": True})
    answer = put(client, configuration, "v2")
    assert answer.status_code == 400
    assert named in answer.text
    assert client.get(f"/jobs/{JOB_ID}/autoscaler").json()["configurationId"] == "v1"


def test_the_id_of_a_configuration_has_a_limited_alphabet(client: AsgiClient) -> None:
    assert put(client, {}, "a b").status_code == 400
    assert put(client, {}, "x" * 65).status_code == 400


def test_a_job_that_has_ended_cannot_be_configured(client: AsgiClient) -> None:
    answer = client.request(
        "PUT", f"/jobs/{OLD_ID}/autoscaler/configuration", json={"configuration": {}, "configurationId": "v1"}
    )
    assert answer.status_code == 409
