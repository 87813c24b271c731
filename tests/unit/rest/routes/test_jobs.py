from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.metrics.store import MetricStore
from penstock.rest import models
from penstock.rest.views.jobs import job_config, job_details
from tests.unit.rest.fake_gateway import JOB_ID, OLD_ID, RUNNING, START, WATERMARK

if TYPE_CHECKING:
    from tests.unit.rest.asgi_client import AsgiClient
    from tests.unit.rest.fake_gateway import FakeGateway

SOURCE = "0" * 32
COUNT = "0" * 31 + "1"


def test_ids_and_states_are_listed(client: AsgiClient) -> None:
    assert client.get("/jobs").json() == {
        "jobs": [{"id": JOB_ID, "status": "RUNNING"}, {"id": OLD_ID, "status": "FAILED"}]
    }


def test_the_overview_lists_jobs(client: AsgiClient) -> None:
    running, failed = client.get("/jobs/overview").json()["jobs"]
    assert running["jid"] == JOB_ID
    assert running["state"] == "RUNNING"
    assert (running["start-time"], running["end-time"]) == (START, -1)
    assert running["last-modification"] == START + 900
    assert running["tasks"]["running"] == running["tasks"]["total"] == 4
    assert (failed["end-time"], failed["duration"]) == (START + 60_000, 60_000)


def test_job_details_have_flinks_fields(client: AsgiClient) -> None:
    job = client.get(f"/jobs/{JOB_ID}").json()
    assert set(job) == {
        "jid", "name", "isStoppable", "state", "job-type", "start-time", "end-time", "duration", "maxParallelism",
        "now", "timestamps", "vertices", "status-counts", "plan", "start-step", "end-step",
    }  # fmt: skip
    assert job["isStoppable"] is True
    assert job["timestamps"]["RUNNING"] == START + 900
    assert job["timestamps"]["FAILED"] == 0
    assert len(job["timestamps"]) == 11
    source, count = job["vertices"]
    assert set(source) == {
        "id", "name", "maxParallelism", "parallelism", "status", "start-time", "end-time", "duration", "tasks", "metrics",
    }  # fmt: skip
    assert (source["id"], count["id"]) == (SOURCE, COUNT)
    assert source["metrics"]["read-records"] == 300
    assert source["metrics"]["read-records-complete"] is True
    assert source["tasks"]["RUNNING"] == 2
    assert job["status-counts"]["RUNNING"] == 2


def test_the_plan_connects_vertices_and_names_uids(client: AsgiClient) -> None:
    plan = client.get(f"/jobs/{JOB_ID}/plan").json()["plan"]
    source, count = plan["nodes"]
    assert plan["type"] == "STREAMING"
    assert source["inputs"] == []
    assert count["inputs"] == [{"num": 0, "id": SOURCE, "ship_strategy": "HASH", "exchange": "pipelined_bounded"}]
    assert [operator["uid"] for operator in count["operators"]] == ["win", "out"]


def test_status_and_config_are_reported(client: AsgiClient) -> None:
    assert client.get(f"/jobs/{JOB_ID}/status").json() == {"status": "RUNNING"}
    config = client.get(f"/jobs/{JOB_ID}/config").json()
    assert config["execution-config"]["job-parallelism"] == 2
    assert config["execution-config"]["user-config"] == {"parallelism.default": "2", "s3.secret-key": "******"}


def test_exceptions_are_sorted_newest_first_and_report_truncation(client: AsgiClient) -> None:
    found = client.get(f"/jobs/{JOB_ID}/exceptions").json()
    history = found["exceptionHistory"]
    assert [entry["exceptionName"] for entry in history["entries"]] == ["ClusterError", "ValueError"]
    assert history["entries"][1]["stacktrace"].startswith(
        "ValueError: could not parse '7x'\n  at job.py:14\n\nTraceback"
    )
    assert history["truncated"] is False
    assert found["root-exception"].startswith("ClusterError")
    shorter = client.get(f"/jobs/{JOB_ID}/exceptions?maxExceptions=1").json()["exceptionHistory"]
    assert (len(shorter["entries"]), shorter["truncated"]) == (1, True)


def test_a_job_without_failures_has_no_root_exception(client: AsgiClient, gateway: FakeGateway) -> None:
    gateway.all_jobs[JOB_ID] = replace(RUNNING, failures=())
    found = client.get(f"/jobs/{JOB_ID}/exceptions").json()
    assert found["root-exception"] is None
    assert found["exceptionHistory"] == {"entries": [], "truncated": False}


def test_accumulators_and_execution_result_are_reported(client: AsgiClient) -> None:
    accumulators = client.get(f"/jobs/{JOB_ID}/accumulators").json()
    assert accumulators["user-task-accumulators"] == [{"name": "lines", "type": "LongCounter", "value": "42"}]
    assert client.get(f"/jobs/{JOB_ID}/execution-result").json() == {"status": {"id": "IN_PROGRESS"}}
    result = client.get(f"/jobs/{OLD_ID}/execution-result").json()["job-execution-result"]
    assert (result["application-status"], result["net-runtime"]) == ("FAILED", 60_000)
    assert result["failure-cause"]["class"] == "ClusterError"


def test_metrics_of_a_job_and_of_all_jobs_are_reported(client: AsgiClient) -> None:
    names = "numRestarts,numRescales,numberOfCompletedCheckpoints,lastCompletedCheckpointId,isRunning,downtime"
    assert {metric["id"]: metric["value"] for metric in client.get(f"/jobs/{JOB_ID}/metrics?get={names}").json()} == {
        "numRestarts": "1",
        "numRescales": "33",
        "numberOfCompletedCheckpoints": "10",
        "lastCompletedCheckpointId": "3",
        "isRunning": "true",
        "downtime": "0",
    }
    assert client.get("/jobs/metrics?get=numRestarts&agg=sum").json() == [{"id": "numRestarts", "sum": 1.0}]


def test_progress_has_all_values_of_a_live_view(client: AsgiClient) -> None:
    progress = models.JobProgress.model_validate(client.get(f"/jobs/{JOB_ID}/progress").json())
    assert (progress.epoch, progress.restarts, progress.parallelism) == (412, 1, 2)
    assert (progress.watermark, progress.lag) == (WATERMARK, 1200)
    assert progress.checkpoints.last is not None
    assert (progress.checkpoints.last.id, progress.checkpoints.completed) == (3, 10)
    assert [vertex.records_in for vertex in progress.vertices] == [300, 300]
    assert progress.events[-1].text == "job is RUNNING"
    assert (progress.slots_total, progress.taskmanagers) == (8, 2)
    assert progress.last_exception == "ClusterError: executor 1 was lost"


def test_a_vertex_has_its_subtasks(client: AsgiClient) -> None:
    vertex = client.get(f"/jobs/{JOB_ID}/vertices/{COUNT}").json()
    assert (vertex["maxParallelism"], len(vertex["subtasks"])) == (128, 2)
    subtask = client.get(f"/jobs/{JOB_ID}/vertices/{COUNT}/subtasks/1").json()
    assert subtask == vertex["subtasks"][1] | {"duration": subtask["duration"]}
    assert subtask["taskmanager-id"] == "tm-1"
    assert subtask["start-time"] == subtask["start_time"] == START
    assert subtask["metrics"]["read-records"] == 200


def test_the_engines_own_vertex_id_is_accepted(client: AsgiClient) -> None:
    assert client.get(f"/jobs/{JOB_ID}/vertices/1").json()["id"] == COUNT


def test_workers_and_times_of_a_vertex_are_reported(client: AsgiClient) -> None:
    workers = client.get(f"/jobs/{JOB_ID}/vertices/{SOURCE}/taskmanagers").json()["taskmanagers"]
    assert [worker["taskmanager-id"] for worker in workers] == ["tm-0", "tm-1"]
    assert workers[1]["metrics"]["read-records"] == 200
    times = client.get(f"/jobs/{JOB_ID}/vertices/{SOURCE}/subtasktimes").json()["subtasks"]
    assert times[0]["timestamps"] == {"RUNNING": START}


def test_watermarks_are_the_smallest_long_before_the_first_watermark(client: AsgiClient) -> None:
    assert client.get(f"/jobs/{JOB_ID}/vertices/{COUNT}/watermarks").json() == [
        {"id": "0.currentInputWatermark", "value": str(-(2**63))},
        {"id": "1.currentInputWatermark", "value": str(WATERMARK)},
    ]


def test_back_pressure_is_reported(client: AsgiClient) -> None:
    found = client.get(f"/jobs/{JOB_ID}/vertices/{COUNT}/backpressure").json()
    assert (found["status"], found["backpressure-level"]) == ("ok", "ok")
    assert {"subtask", "ratio", "idleRatio", "busyRatio", "backpressure-level"} <= set(found["subtasks"][0])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metrics?get=1.numRecordsIn", [{"id": "1.numRecordsIn", "value": "200"}]),
        ("subtasks/0/metrics?get=Window.MyMetrics.hits", [{"id": "Window.MyMetrics.hits", "value": "5"}]),
        ("subtasks/metrics?get=numRecordsIn&agg=avg,sum", [{"id": "numRecordsIn", "avg": 150.0, "sum": 300.0}]),
        ("subtasks/metrics?get=numRecordsIn&agg=sum&subtasks=1-3", [{"id": "numRecordsIn", "sum": 200.0}]),
    ],
)
def test_metrics_of_a_vertex_are_reported(client: AsgiClient, path: str, expected: object) -> None:
    assert client.get(f"/jobs/{JOB_ID}/vertices/{COUNT}/{path}").json() == expected


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/jobs/none", 404, "the cluster has no job none"),
        (f"/jobs/{JOB_ID}/vertices/abc", 404, "has no vertex abc"),
        (f"/jobs/{JOB_ID}/vertices/{COUNT}/subtasks/7", 404, "has no subtask 7"),
        (f"/jobs/{JOB_ID}/vertices/{COUNT}/subtasks/metrics?subtasks=a", 400, "'a' is not a number"),
        (f"/jobs/{JOB_ID}/exceptions?maxExceptions=x", 400, "maxExceptions"),
        ("/nowhere", 404, "Not Found: GET /nowhere"),
        ("/jobs/boom", 500, "internal error: RuntimeError: a defect"),
    ],
)
def test_errors_are_lists_with_the_right_status(client: AsgiClient, path: str, status: int, text: str) -> None:
    answer = client.get(path)
    assert answer.status_code == status
    assert text in answer.json()["errors"][0]


def test_a_wrong_method_is_405(client: AsgiClient) -> None:
    assert client.post("/overview").status_code == 405


def test_the_summary_is_small_and_has_the_values_that_programs_poll(client: AsgiClient, gateway: FakeGateway) -> None:
    answer = client.get(f"/jobs/{JOB_ID}/summary").json()
    assert (answer["jid"], answer["state"], answer["parallelism"], answer["restarts"]) == (JOB_ID, "RUNNING", 2, 1)
    points = answer["checkpoints"]
    assert (points["completed"], points["last"]["id"], points["failure"]) == (10, 2, "storage away")
    assert points["last"]["external-path"].endswith("chk-2")
    assert (answer["last-rescale"]["new-parallelism"], answer["last-rescale"]["duration"]) == (2, 2100)
    assert answer["exception"] == "", "it is RUNNING"
    gateway.all_jobs[JOB_ID] = replace(RUNNING, state="RESTARTING")
    failing = client.get(f"/jobs/{JOB_ID}/summary")
    assert failing.json()["exception"].startswith("ClusterError")
    assert not failing.json()["end-of-input"]
    gateway.all_jobs[JOB_ID] = replace(RUNNING, state="FINISHED", end_of_input=True)
    assert client.get(f"/jobs/{JOB_ID}/summary").json()["end-of-input"]
    assert client.get("/jobs/unknown/summary").status_code == 404


@pytest.mark.parametrize(
    ("is_batch", "mode", "job_type"), [(True, "BATCH", "BATCH"), (False, "PIPELINED", "STREAMING")]
)
def test_the_execution_mode_and_job_type_are_the_effective_ones(is_batch: bool, mode: str, job_type: str) -> None:
    job = replace(RUNNING, is_batch=is_batch)
    assert job_config(job).execution_config.execution_mode == mode
    assert job_details(job, MetricStore(), 0).job_type == job_type
