from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.rest.fake_gateway import JOB_ID, OLD_ID

if TYPE_CHECKING:
    from tests.unit.rest.asgi_client import AsgiClient
    from tests.unit.rest.fake_gateway import FakeGateway

TRIGGER = "0123456789abcdef0123456789abcdef"


def test_a_savepoint_is_triggered_and_polled_as_in_the_transcript(client: AsgiClient, gateway: FakeGateway) -> None:
    gateway.polls_until_done = 3
    answer = client.post(
        f"/jobs/{JOB_ID}/savepoints", json={"target-directory": "file:///savepoints", "cancel-job": "false"}
    )
    assert answer.status_code == 202
    path = f"/jobs/{JOB_ID}/savepoints/{answer.json()['request-id']}"
    assert [client.get(path).json() for _ in range(3)] == [
        {"status": {"id": "IN_PROGRESS"}},
        {"status": {"id": "IN_PROGRESS"}},
        {
            "status": {"id": "COMPLETED"},
            "operation": {"location": f"file:///savepoints/savepoint-{JOB_ID[:6]}-0123456789ab"},
        },
    ]
    assert gateway.calls == [("savepoint", "file:///savepoints", False)]


def test_a_failed_savepoint_is_completed_with_a_cause_and_the_job_keeps_running(
    client: AsgiClient, gateway: FakeGateway
) -> None:
    gateway.savepoint_failure = "s3://b is not writable"
    answer = client.post(f"/jobs/{JOB_ID}/savepoints", json={"target-directory": "s3://b", "cancel-job": True})
    found = client.get(f"/jobs/{JOB_ID}/savepoints/{answer.json()['request-id']}").json()
    assert found == {
        "status": {"id": "COMPLETED"},
        "operation": {
            "failure-cause": {
                "class": "StorageError",
                "stack-trace": "s3://b is not writable",
                "serialized-throwable": "",
            }
        },
    }
    assert gateway.all_jobs[JOB_ID].state == "RUNNING"


def test_a_savepoint_without_any_directory_is_refused(client: AsgiClient) -> None:
    answer = client.post(f"/jobs/{JOB_ID}/savepoints")
    assert answer.status_code == 400
    assert answer.json()["errors"] == [
        "no savepoint directory is known",
        "remedy: give one, or set state.savepoints.dir",
    ]


def test_a_client_may_choose_the_request_id(client: AsgiClient) -> None:
    body = {"target-directory": "s3://b", "triggerId": TRIGGER}
    assert client.post(f"/jobs/{JOB_ID}/savepoints", json=body).json() == {"request-id": TRIGGER}
    rescaling = client.patch(f"/jobs/{JOB_ID}/rescaling?parallelism=3&triggerId={TRIGGER}").json()
    assert rescaling == {"request-id": TRIGGER, "triggerid": TRIGGER}
    bad = client.post(f"/jobs/{JOB_ID}/savepoints", json={"triggerId": "x"})
    assert bad.status_code == 400
    assert "triggerId" in bad.json()["errors"][0]


def test_stop_with_drain_is_polled_under_savepoints(client: AsgiClient, gateway: FakeGateway) -> None:
    answer = client.post(f"/jobs/{JOB_ID}/stop", json={"targetDirectory": "s3://b/s", "drain": True})
    assert answer.status_code == 202
    outcome = client.get(f"/jobs/{JOB_ID}/savepoints/{answer.json()['request-id']}").json()
    assert outcome["operation"]["location"].startswith("s3://b/s/savepoint-bc0b2a-")
    assert gateway.calls == [("stop", "s3://b/s", True)]


@pytest.mark.parametrize("kind", ["FULL", "CONFIGURED", "INCREMENTAL"])
def test_a_checkpoint_can_be_requested(client: AsgiClient, gateway: FakeGateway, kind: str) -> None:
    answer = client.post(f"/jobs/{JOB_ID}/checkpoints", json={"checkpointType": kind})
    found = client.get(f"/jobs/{JOB_ID}/checkpoints/{answer.json()['request-id']}").json()
    assert found == {"status": {"id": "COMPLETED"}, "operation": {"checkpointId": 6}}
    assert gateway.calls == [("checkpoint",)]


def test_a_rescale_is_triggered_and_polled(client: AsgiClient, gateway: FakeGateway) -> None:
    answer = client.patch(f"/jobs/{JOB_ID}/rescaling?parallelism=4")
    assert answer.status_code == 200
    outcome = client.get(f"/jobs/{JOB_ID}/rescaling/{answer.json()['request-id']}").json()
    assert outcome == {"status": {"id": "COMPLETED"}, "operation": {}}
    assert gateway.calls == [("rescale", 4)]


@pytest.mark.parametrize("query", ["", "?parallelism=0", "?parallelism=many"])
def test_a_rescale_needs_a_positive_number(client: AsgiClient, query: str) -> None:
    answer = client.patch(f"/jobs/{JOB_ID}/rescaling{query}")
    assert answer.status_code == 400
    assert "parallelism" in answer.json()["errors"][0]


def test_a_job_is_cancelled(client: AsgiClient, gateway: FakeGateway) -> None:
    assert client.patch(f"/jobs/{JOB_ID}").status_code == 202
    assert client.get(f"/jobs/{JOB_ID}/status").json() == {"status": "CANCELED"}
    assert gateway.calls == [("cancel",)]


def test_a_job_is_cancelled_with_the_deprecated_mode(client: AsgiClient) -> None:
    answer = client.patch(f"/jobs/{JOB_ID}?mode=stop")
    assert answer.status_code == 410
    assert f"POST /jobs/{JOB_ID}/stop" in answer.json()["errors"][1]


def test_an_ended_job_accepts_no_requests(client: AsgiClient) -> None:
    assert client.patch(f"/jobs/{OLD_ID}").status_code == 409
    assert client.patch(f"/jobs/{OLD_ID}/rescaling?parallelism=2").status_code == 409
    assert client.post(f"/jobs/{OLD_ID}/checkpoints").status_code == 409


def test_a_request_is_found_only_under_its_own_path(client: AsgiClient) -> None:
    request_id = client.patch(f"/jobs/{JOB_ID}/rescaling?parallelism=4").json()["request-id"]
    assert client.get(f"/jobs/{JOB_ID}/savepoints/{request_id}").status_code == 404
    assert client.get(f"/jobs/{OLD_ID}/rescaling/{request_id}").status_code == 404
    assert client.get(f"/jobs/{JOB_ID}/rescaling/{TRIGGER}").status_code == 404
