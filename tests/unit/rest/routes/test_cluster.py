from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from penstock.rest import facts
from penstock.rest.views.ids import vertex_id
from tests.unit.rest.fake_gateway import JOB_ID, START

if TYPE_CHECKING:
    from penstock.rest.gateway import ClusterGateway
    from tests.unit.rest.asgi_client import AsgiClient
    from tests.unit.rest.fake_gateway import FakeGateway


RSS = "Status.Python.Memory.RSS"


def test_the_fake_is_a_gateway(gateway: FakeGateway) -> None:
    seam: ClusterGateway = gateway
    assert seam.readiness().ready


def test_overview_has_flinks_fields(client: AsgiClient) -> None:
    assert client.get("/overview").json() == {
        "taskmanagers": 2,
        "slots-total": 8,
        "slots-available": 6,
        "jobs-running": 1,
        "jobs-finished": 0,
        "jobs-cancelled": 0,
        "jobs-failed": 1,
        "flink-version": "2.3-penstock-0.2.0",
        "flink-commit": "",
    }


def test_every_path_also_exists_under_v1(client: AsgiClient) -> None:
    assert client.get("/v1/overview").json() == client.get("/overview").json()
    assert client.get("/v1/jobs").json() == client.get("/jobs").json()


def test_config_names_the_actions_of_the_dashboard(client: AsgiClient) -> None:
    found = client.get("/config").json()
    assert set(found) >= {"refresh-interval", "timezone-name", "timezone-offset", "flink-version", "features"}
    assert found["features"]["web-submit"] is False


def test_secrets_in_the_configuration_are_hidden_and_file_names_are_not(client: AsgiClient) -> None:
    entries = {entry["key"]: entry["value"] for entry in client.get("/jobmanager/config").json()}
    assert entries == {"rest.port": "8081", "s3.secret-key": "******", "security.rest.token-file": "/run/token"}


def test_environment_and_thread_dump_describe_this_process(client: AsgiClient) -> None:
    assert "CPython" in client.get("/jobmanager/environment").json()["jvm"]["version"]
    threads = client.get("/jobmanager/thread-dump").json()["threadInfos"]
    assert any("test_environment_and_thread_dump" in t["stringifiedThreadInfo"] for t in threads)


def test_task_managers_have_slots_and_memory(client: AsgiClient) -> None:
    (first, _) = client.get("/taskmanagers").json()["taskmanagers"]
    assert (first["id"], first["slotsNumber"], first["freeSlots"]) == ("tm-0", 4, 3)
    assert (first["path"], first["dataPort"], first["timeSinceLastHeartbeat"]) == ("host-0:7100", 7100, START)
    assert first["hardware"] == {
        "cpuCores": 4,
        "physicalMemory": 8 * 2**30,
        "freeMemory": 6 * 2**30,
        "managedMemory": 0,
    }
    assert first["memoryUsed"] == 2**29
    assert (first["totalResource"]["cpuCores"], first["freeResource"]["cpuCores"]) == (4, 3)
    assert (first["totalResource"]["taskHeapMemory"], first["freeResource"]["taskHeapMemory"]) == (2048, 1536)
    details = client.get("/taskmanagers/tm-0").json()
    assert [slot["jobId"] for slot in details["allocatedSlots"]] == ["bc0b2ad61ecd4a615d92ce25390f61ad"]
    assert details["metrics"]["heapUsed"] == 2**29


def test_the_error_for_an_unknown_task_manager_lists_the_known_ones(client: AsgiClient) -> None:
    answer = client.get("/taskmanagers/tm-9")
    assert answer.status_code == 404
    assert answer.json() == {
        "errors": ["TaskManager tm-9 is not registered", "remedy: registered TaskManagers: tm-0, tm-1"]
    }


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/taskmanagers/tm-1/metrics", [{"id": "Status.Python.CPU.Time"}, {"id": RSS}]),
        ("/jobmanager/metrics?get=taskSlotsTotal,none", [{"id": "taskSlotsTotal", "value": "8"}]),
        (f"/taskmanagers/tm-1/metrics?get={RSS}", [{"id": RSS, "value": str(2**30)}]),
        (f"/taskmanagers/metrics?get={RSS}&agg=min,max", [{"id": RSS, "min": float(2**29), "max": float(2**30)}]),
        (f"/taskmanagers/metrics?get={RSS}&agg=sum&taskmanagers=tm-1", [{"id": RSS, "sum": float(2**30)}]),
    ],
)
def test_metrics_are_selected_by_name(client: AsgiClient, path: str, expected: object) -> None:
    assert client.get(path).json() == expected


def test_the_jobmanagers_metrics_are_those_of_the_cluster_and_of_its_process(client: AsgiClient) -> None:
    names = {metric["id"] for metric in client.get("/jobmanager/metrics").json()}
    assert names >= {
        "taskSlotsTotal",
        "taskSlotsAvailable",
        "numRegisteredTaskManagers",
        "numRunningJobs",
        "Status.Process.CPU.Time",
        "Status.Process.Memory.Max",
    }


def test_metrics_of_jvms_and_exchanges_are_shown_at_their_component(client: AsgiClient, gateway: FakeGateway) -> None:
    vertex = gateway.job(JOB_ID).vertices[-1]
    heap = "Status.JVM.Memory.Heap.Used"
    gateway.measured = facts.Measurements(
        {heap: 11}, {"tm-1": {heap: 22}}, {(JOB_ID, vertex.id, 1): {"inPoolUsage": 0.5}, (JOB_ID, "none", 0): {"x": 1}}
    )
    assert client.get(f"/jobmanager/metrics?get={heap}").json() == [{"id": heap, "value": "11"}]
    assert client.get(f"/taskmanagers/tm-1/metrics?get={heap}").json() == [{"id": heap, "value": "22"}]
    path = f"/jobs/{JOB_ID}/vertices/{vertex_id(vertex.id)}/subtasks/1/metrics?get=inPoolUsage"
    assert client.get(path).json() == [{"id": "inPoolUsage", "value": "0.5"}]
    page = client.get("/metrics").text
    assert 'penstock_taskmanager_Status_JVM_Memory_Heap_Used{tm_id="tm-1"} 22' in page
    assert "penstock_taskmanager_job_task_inPoolUsage{" in page


def test_an_unknown_aggregation_is_refused(client: AsgiClient) -> None:
    answer = client.get(f"/taskmanagers/metrics?get={RSS}&agg=median")
    assert answer.status_code == 400
    assert "median" in answer.json()["errors"][0]


def test_a_shutdown_is_answered_before_it_starts(client: AsgiClient, gateway: FakeGateway) -> None:
    assert client.delete("/cluster").status_code == 200
    assert gateway.was_shut_down.wait(10)


def test_a_disposal_is_triggered_and_polled(client: AsgiClient, gateway: FakeGateway) -> None:
    gateway.polls_until_done = 2
    answer = client.post("/savepoint-disposal", json={"savepoint-path": "s3://b/savepoint-x"})
    request_id = answer.json()["request-id"]
    assert answer.status_code == 200
    assert client.get(f"/savepoint-disposal/{request_id}").json() == {"status": {"id": "IN_PROGRESS"}}
    assert client.get(f"/savepoint-disposal/{request_id}").json()["status"] == {"id": "COMPLETED"}


def test_the_disposal_of_a_missing_savepoint_fails(client: AsgiClient) -> None:
    answer = client.post("/savepoint-disposal", json={"savepoint-path": "s3://b/other"})
    assert answer.status_code == 404
    assert answer.headers["X-Penstock-Error"] == "SNAPSHOT_NOT_FOUND"


def test_probes_are_answered(client: AsgiClient, gateway: FakeGateway) -> None:
    assert client.get("/healthz").text == "ok\n"
    assert client.get("/readyz").status_code == 200
    gateway.ready = facts.Readiness(False, "standby")
    answer = client.get("/readyz")
    assert (answer.status_code, answer.text) == (503, "not ready: standby\n")


def test_prometheus_page_has_the_metrics(client: AsgiClient) -> None:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert re.search(r"^penstock_jobmanager_taskSlotsTotal\{host=\"master\"\} 8$", answer.text, re.MULTILINE)
    assert "penstock_taskmanager_job_task_operator_MyMetrics_hits{" in answer.text
    assert 'tm_id="tm-1"' in answer.text
    assert "tm-that-is-gone" not in answer.text
