"""Statistics in the shapes of Flink's REST API."""

from __future__ import annotations

from penstock.checkpoint.coordinator.statistics import CheckpointHistory, summarize
from penstock.checkpoint.events import JobDescription, SnapshotRequest
from penstock.checkpoint.files.manifest import OperatorInfo
from tests.unit.checkpoint.support import ack, handle, job


def state(size: int) -> dict[str, object]:
    return handle(None, (0, 127), reuse=[{"path": "shared/x", "size": size, "checksum": ""}])


CHAINED = JobDescription(
    "j",
    "job",
    2,
    128,
    "",
    [
        OperatorInfo("parse", "Parse", 2, 128),
        OperatorInfo("count", "Count", 2, 128),
        OperatorInfo("sink", "Sink", 1, 128),
    ],
    {"parse": "v1", "count": "v1", "sink": "v2"},
)


def run(history: CheckpointHistory, id: int, *, duration: int = 100, size: int = 10, fail: str = "") -> None:
    history.triggered(SnapshotRequest(id, 1000 * id), job())
    history.acknowledged(ack(id, keyed=state(size), bytes_uploaded=size // 2), job(), 1000 * id + duration)
    if fail:
        history.failed(id, 1000 * id + duration, fail)
    else:
        history.completed(id, 1000 * id + duration, f"s3://b/chk-{id}")


def test_overview_has_flinks_fields_and_the_reason_why_the_next_checkpoint_waits() -> None:
    history = CheckpointHistory()
    run(history, 1)
    overview = history.overview()
    assert set(overview) == {"counts", "summary", "latest", "history", "trigger"}
    assert set(overview["trigger"]) == {"state", "description", "since", "uncommitted_checkpoints", "pending_commits"}
    assert set(overview["counts"]) == {"restored", "total", "in_progress", "completed", "failed"}
    assert set(overview["latest"]) == {"completed", "savepoint", "failed", "restored"}
    assert set(overview["summary"]["state_size"]) == {"min", "max", "avg", "p50", "p90", "p95", "p99", "p999"}
    (entry,) = overview["history"]
    assert entry == {
        "className": "completed",
        "id": 1,
        "status": "COMPLETED",
        "is_savepoint": False,
        "savepointFormat": None,
        "trigger_timestamp": 1000,
        "latest_ack_timestamp": 1100,
        "checkpointed_size": 5,
        "state_size": 10,
        "end_to_end_duration": 100,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": 1,
        "num_acknowledged_subtasks": 1,
        "checkpoint_type": "CHECKPOINT",
        "tasks": {},
        "external_path": "s3://b/chk-1",
        "discarded": False,
    }


def test_the_summary_covers_completed_checkpoints() -> None:
    history = CheckpointHistory()
    for id, duration in enumerate((100, 200, 300, 400), start=1):
        run(history, id, duration=duration)
    run(history, 9, duration=9999, fail="late")
    summary = history.overview()["summary"]["end_to_end_duration"]
    assert (summary["min"], summary["max"], summary["avg"], summary["p50"]) == (100, 400, 250, 250.0)


def test_the_history_is_bounded_but_keeps_the_latest_of_each_kind() -> None:
    history = CheckpointHistory(size=3)
    run(history, 1, fail="x")
    for id in range(2, 20):
        run(history, id)
    overview = history.overview()
    assert [entry["id"] for entry in overview["history"]] == [19, 18, 17]
    assert overview["latest"]["failed"]["id"] == 1
    assert history.details(1) is not None
    assert history.details(5) is None
    assert overview["counts"]["total"] == 19


def test_operators_of_a_chain_are_one_vertex() -> None:
    history = CheckpointHistory()
    history.triggered(SnapshotRequest(1, 1000), CHAINED)
    for uid in ("parse", "count"):
        for subtask in range(2):
            message = ack(
                1, uid, subtask, keyed=state(10) if uid == "count" else None, bytes_uploaded=4, sync_ms=1, async_ms=9
            )
            history.acknowledged(message, CHAINED, 1050 + subtask)
    details = history.details(1)
    assert details is not None
    assert details["num_subtasks"] == 3
    assert details["num_acknowledged_subtasks"] == 2
    assert details["tasks"]["v1"] == {
        "id": 1,
        "status": "COMPLETED",
        "latest_ack_timestamp": 1051,
        "checkpointed_size": 16,
        "state_size": 20,
        "end_to_end_duration": 51,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": 2,
        "num_acknowledged_subtasks": 2,
    }
    assert details["tasks"]["v2"]["status"] == "IN_PROGRESS"
    subtasks = history.subtask_details(1, "v1")
    assert subtasks is not None
    assert subtasks["subtasks"][0]["checkpoint"] == {"sync": 2, "async": 18}
    assert subtasks["summary"]["state_size"]["avg"] == 10
    pending = history.subtask_details(1, "v2")
    assert pending is not None
    assert pending["subtasks"] == [{"className": "pending", "index": 0, "status": "pending_or_failed"}]
    assert history.subtask_details(1, "v9") is None


def test_restores_and_discards_are_shown() -> None:
    history = CheckpointHistory()
    history.restored(7, 123, "s3://b/chk-7", is_savepoint=False)
    run(history, 8)
    history.discarded(8)
    overview = history.overview()
    assert overview["latest"]["restored"] == {
        "id": 7,
        "restore_timestamp": 123,
        "is_savepoint": False,
        "external_path": "s3://b/chk-7",
    }
    assert overview["history"][0]["discarded"]
    assert overview["counts"]["restored"] == 1


def test_an_end_counts_once() -> None:
    history = CheckpointHistory()
    run(history, 1)
    history.failed(1, 0, "too late")
    history.completed(99, 0, "never triggered")
    assert history.overview()["counts"] == {"restored": 0, "total": 1, "in_progress": 0, "completed": 1, "failed": 0}


def test_quantiles_match_the_samples() -> None:
    values = summarize(range(1, 1001))
    assert (values["p50"], values["p90"], values["p99"], values["p999"]) == (500.5, 900.1, 990.01, 999.001)
