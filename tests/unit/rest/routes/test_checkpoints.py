from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.checkpoint.coordinator.statistics import CheckpointHistory
from penstock.checkpoint.coordinator.triggers import TriggerState
from penstock.checkpoint.events import JobDescription, SnapshotRequest, SubtaskAck
from penstock.checkpoint.files.manifest import OperatorInfo
from penstock.rest import facts, models
from penstock.rest.views.facts_as_metrics import job_metrics
from tests.unit.rest.fake_gateway import JOB_ID, OLD_ID, START, STATS

if TYPE_CHECKING:
    from penstock.rest.models import Shape
    from tests.unit.rest.asgi_client import AsgiClient

COUNT = "0" * 31 + "1"


def test_counts_summary_and_latest_are_reported(client: AsgiClient) -> None:
    found = client.get(f"/jobs/{JOB_ID}/checkpoints").json()
    assert found["counts"] == {"restored": 1, "total": 12, "in_progress": 1, "completed": 10, "failed": 1}
    assert found["summary"]["end_to_end_duration"] == STATS
    latest = found["latest"]
    assert latest["completed"]["id"] == 2
    assert latest["completed"]["external_path"] == "s3://b/j/chk-2"
    assert latest["savepoint"]["id"] == 3
    assert latest["failed"]["failure_message"] == "storage away"
    assert latest["restored"] == {
        "id": 1,
        "restore_timestamp": START + 700,
        "is_savepoint": False,
        "external_path": "s3://b/j/chk-1",
    }


def test_the_history_is_sorted_newest_first_with_the_status_of_each(client: AsgiClient) -> None:
    history = client.get(f"/jobs/{JOB_ID}/checkpoints").json()["history"]
    assert [(c["id"], c["status"], c["className"]) for c in history] == [
        (5, "IN_PROGRESS", "in_progress"),
        (4, "FAILED", "failed"),
        (3, "COMPLETED", "completed"),
        (2, "COMPLETED", "completed"),
        (1, "COMPLETED", "completed"),
    ]
    assert [c["is_savepoint"] for c in history] == [False, False, True, False, False]
    assert history[3]["checkpointed_size"] == 200
    assert history[3]["state_size"] == 1000


def test_a_job_without_checkpoints_has_empty_statistics(client: AsgiClient) -> None:
    found = models.CheckpointingStatistics.model_validate(client.get(f"/jobs/{OLD_ID}/checkpoints").json())
    assert found.counts.total == 0
    assert found.latest.completed is None


def test_the_configuration_is_reported(client: AsgiClient) -> None:
    found = client.get(f"/jobs/{JOB_ID}/checkpoints/config").json()
    assert (found["mode"], found["max_concurrent"]) == ("at_least_once", 1)
    assert (found["interval"], found["timeout"], found["min_pause"]) == (10_000, 600_000, 500)
    assert found["externalization"] == {"enabled": True, "delete_on_cancellation": False}
    assert (found["state_backend"], found["tolerable_failed_checkpoints"]) == ("rocksdb", 3)


def test_details_are_reported_by_vertex_and_subtask(client: AsgiClient) -> None:
    details = client.get(f"/jobs/{JOB_ID}/checkpoints/details/2").json()
    assert details["tasks"][COUNT]["num_acknowledged_subtasks"] == 1
    assert details["tasks"][COUNT]["num_subtasks"] == 2
    task = client.get(f"/jobs/{JOB_ID}/checkpoints/details/2/subtasks/{COUNT}").json()
    done, pending = task["subtasks"]
    assert done["checkpoint"] == {"sync": 1, "async": 40}
    assert done["end_to_end_duration"] == 120
    assert pending == {"className": "pending", "index": 1, "status": "pending_or_failed"}
    assert task["summary"]["checkpoint_duration"] == {"sync": STATS, "async": STATS}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("99", "checkpoint 99 of job"),
        (f"1/subtasks/{COUNT}", "nothing is known of vertex"),
        ("2/subtasks/nope", "has no vertex nope"),
    ],
)
def test_an_unknown_checkpoint_is_404(client: AsgiClient, path: str, text: str) -> None:
    answer = client.get(f"/jobs/{JOB_ID}/checkpoints/details/{path}")
    assert answer.status_code == 404
    assert text in answer.json()["errors"][0]


def test_the_coordinators_statistics_match_the_models() -> None:
    job = JobDescription("job", "name", 2, 8, "fingerprint", [OperatorInfo("a", "A", 2, 8)], vertices={"a": "7"})
    history = CheckpointHistory()
    for checkpoint_id, is_savepoint in ((1, False), (2, True), (3, False), (4, False)):
        history.triggered(SnapshotRequest(checkpoint_id, 100 * checkpoint_id, is_savepoint=is_savepoint), job)
        for subtask in range(2):
            history.acknowledged(
                SubtaskAck(checkpoint_id, "a", subtask, bytes_uploaded=10), job, 100 * checkpoint_id + 5
            )
        if checkpoint_id < 3:
            history.completed(checkpoint_id, 100 * checkpoint_id + 9, f"s3://b/{checkpoint_id}")
    history.failed(3, 350, "storage away")
    history.restored(1, 50, "s3://b/1", is_savepoint=False)

    def written(model: Shape) -> dict[str, object]:
        return model.model_dump(by_alias=True, exclude_none=True)

    overview = models.CheckpointingStatistics.model_validate(history.overview())
    found, expected = written(overview), history.overview()
    assert (found["counts"], found["summary"]) == (expected["counts"], expected["summary"])
    assert [c.class_name for c in overview.history] == ["in_progress", "failed", "completed", "completed"]
    details = written(models.CheckpointStatistics.model_validate(history.details(2)))
    assert {k: v for k, v in (history.details(2) or {}).items() if v is not None} == details
    subtasks = written(models.TaskCheckpointDetails.model_validate(history.subtask_details(2, "7")))
    assert subtasks["subtasks"] == (history.subtask_details(2, "7") or {})["subtasks"]


def test_the_backlog_that_delays_the_next_checkpoint_is_a_metric() -> None:
    history = CheckpointHistory()
    history.set_trigger_state(TriggerState.WAITING_FOR_COMMITS, 1_000)
    history.commits_left(3, 12)
    overview = models.CheckpointingStatistics.model_validate(history.overview())
    job = facts.Job(JOB_ID, "job", "RUNNING", 0, 1, 128, timestamps={"RUNNING": 0})
    metrics = job_metrics(job, overview, now=5_500)
    assert (metrics["numberOfUncommittedCheckpoints"], metrics["numberOfPendingCommits"]) == (3, 12)
    assert metrics["checkpointWaitForCommits"] == 4_500
    history.set_trigger_state(TriggerState.IN_PROGRESS, 6_000)
    overview = models.CheckpointingStatistics.model_validate(history.overview())
    assert job_metrics(job, overview, now=7_000)["checkpointWaitForCommits"] == 0
