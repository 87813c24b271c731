"""The decision table: the check of a new revision, and the savepoint before the job stops."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock_operator.api.status.snapshots import Restore
from penstock_operator.engine.account import Request
from penstock_operator.reconcile.core import decide
from penstock_operator.reconcile.decide import actions
from penstock_operator.reconcile.observation import CheckPod, CheckProblem, Observation, Trouble
from penstock_operator.storage.snapshots import Verdict
from tests.unit.operator.contexts import CHK, NOW, SAVEPOINT, ago, chk, engine, make_spec, stored, up
from tests.unit.operator.decisions import action, in_step, reasons, step


def test_the_check_runs_against_the_newest_checkpoint() -> None:
    decision = decide(in_step("Upgrade", "Check"))
    assert isinstance(decision.action, actions.RunCheck)
    assert decision.action.against == CHK


@pytest.mark.parametrize("kind", ["no", "stable"])
def test_an_unnecessary_check_is_skipped(kind: str) -> None:
    if kind == "no":
        ctx = in_step("Upgrade", "Check", spec=make_spec(image="job:2", upgrade={"check": False}))
    else:
        ctx = in_step("Resume", "Check", spec=make_spec(), status={"running": None})
    assert step(decide(ctx)) in ("Upgrade/Prepare", "Resume/Start")


@pytest.mark.parametrize(
    ("pod_state", "outcome"),
    [
        (CheckPod("c", "op", "Passed"), "Upgrade/Prepare"),
        (CheckPod("c", "op", "Refused", (CheckProblem("STATE", "uid 'dedup' is gone", "Keep it"),)), "CheckFailed"),
        (CheckPod("c", "op", "Crashed", output="OOMKilled"), "CheckCrashed"),
        (CheckPod("c", "op", "Overdue", output="importing"), "CheckTimeout"),
        (CheckPod("c", "op", "Running"), "Upgrade/Check"),
        (
            CheckPod("c", "op", "Waiting", trouble=Trouble("ImagePullFailed", "no such image", "Correct it")),
            "Upgrade/Check",
        ),
    ],
)
def test_the_result_of_the_check_pod_decides_the_next_step(pod_state: CheckPod, outcome: str) -> None:
    decision = decide(in_step("Upgrade", "Check", up(check=pod_state)))
    if "/" in outcome:
        assert step(decision) == outcome
    else:
        assert decision.status.operation is None
        assert decision.status.rejected is not None
        assert decision.status.rejected.reason == outcome
        assert decision.status.running is not None, "the old job is left alone"
    if pod_state.trouble:
        stalled = decision.status.condition("Stalled")
        assert stalled is not None
        assert stalled.reason == "ImagePullFailed"


def test_a_check_without_storage_is_repeated() -> None:
    found = CheckPod("c", "op", "Refused", (CheckProblem("STORAGE", "s3://bucket cannot be written: 403", "Grant it"),))
    first = decide(in_step("Upgrade", "Check", up(check=found)))
    assert (step(first), action(first)) == ("Upgrade/Check", "")
    assert first.status.rejected is None, "it may be mended without an edit"
    stalled = first.status.condition("Stalled")
    assert stalled is not None
    assert (stalled.reason, stalled.status) == ("StorageUnavailable", "True")
    assert "403. Grant it" in stalled.message
    later = decide(in_step("Upgrade", "Check", up(check=found), retry_at=ago(1), attempt=1, blocked=stalled.reason))
    assert later.action == actions.DeleteCheck("c")
    assert later.status.operation is not None
    assert later.status.operation.retry_at is None


EVICTED = CheckPod("c", "op", "Interrupted", trouble=Trouble("CheckInterrupted", "Evicted: low on memory", "Again"))
DEADLINE = CheckPod("c", "op", "Interrupted", trouble=Trouble("CheckInterrupted", "DeadlineExceeded", "Again"))
NO_IMAGE: dict[str, Any] = {"blocked": "ImagePullFailed", "message": "the check pod: no such image. Correct it"}


@pytest.mark.parametrize(
    ("found", "before", "reason", "words"),
    [
        (EVICTED, {}, "CheckInterrupted", "Evicted: low on memory. Again"),
        (EVICTED, {"blocked": "Unschedulable", "message": "no node"}, "CheckInterrupted", "Evicted"),
        (DEADLINE, {}, "CheckInterrupted", "DeadlineExceeded"),
        (DEADLINE, NO_IMAGE, "ImagePullFailed", "no such image. Correct it"),
    ],
)
def test_an_interrupted_check_is_repeated(found: CheckPod, before: dict[str, Any], reason: str, words: str) -> None:
    first = decide(in_step("Upgrade", "Check", up(check=found), **before))
    op = first.status.operation
    assert op is not None
    assert (step(first), action(first), op.attempt, op.retry_at) == (
        "Upgrade/Check",
        "",
        1,
        NOW + timedelta(seconds=10),
    )
    assert first.status.rejected is None
    assert op.blocked == reason
    assert words in op.message
    waited = op.model_dump(include={"blocked", "message", "attempt"})
    later = decide(in_step("Upgrade", "Check", up(check=found), retry_at=ago(1), **waited))
    assert later.action == actions.DeleteCheck("c")
    repeated = decide(in_step("Upgrade", "Check", up(), **waited))
    assert action(repeated) == "RunCheck"
    assert repeated.status.operation is not None
    assert (repeated.status.operation.blocked, repeated.status.operation.message) == (op.blocked, op.message)


@pytest.mark.parametrize(
    ("blocked", "state", "reported"),
    [
        ("ImagePullFailed", "Waiting", True),
        ("ImagePullFailed", "Running", False),
        ("CheckInterrupted", "Waiting", True),
        ("CheckInterrupted", "Running", True),
        ("QuotaExceeded", "Waiting", False),
    ],
)
def test_the_reason_for_a_repeated_check_is_reported_as_long_as_it_applies(
    blocked: str, state: Any, reported: bool
) -> None:
    op: dict[str, Any] = {"attempt": 1, "blocked": blocked, "message": "why"}
    after = decide(in_step("Upgrade", "Check", up(check=CheckPod("c", "op", state)), **op)).status.operation
    assert after is not None
    assert (after.blocked, after.message == "why") == (blocked if reported else None, reported)


def test_the_timeout_of_a_check_starts_with_its_container() -> None:
    late = CheckPod("c", "op", "Running", started=ago(30))
    assert step(decide(in_step("Upgrade", "Check", up(check=late), step_since=ago(3000)))) == "Upgrade/Check"
    hung = CheckPod("c", "op", "Running", started=ago(700))
    rejected = decide(in_step("Upgrade", "Check", up(check=hung), step_since=ago(3000))).status.rejected
    assert rejected is not None
    assert rejected.reason == "CheckTimeout"


def test_a_check_pod_of_another_operation_is_removed() -> None:
    decision = decide(in_step("Upgrade", "Check", up(check=CheckPod("old", "other", "Passed"))))
    assert isinstance(decision.action, actions.DeleteCheck)


def test_folder_and_trigger_are_in_the_status_before_the_request_to_the_engine() -> None:
    decision = decide(in_step("Upgrade", "Stop"))
    assert isinstance(decision.action, actions.StopWithSavepoint)
    op = decision.status.operation
    assert op is not None
    assert (op.target_directory, op.trigger_id) == (decision.action.directory, decision.action.trigger_id)
    assert op.deadline is not None
    assert decision.action.directory.startswith("s3://bucket/savepoints/default/weather-uid-1/op-1")


NOT_SET: dict[str, Any] = {
    "trigger_id": "t" * 32,
    "target_directory": "s3://b/t",
    "stop_job_id": "a" * 32,
    "attempt": 1,
}


def request(state: Any, **values: Any) -> Any:
    return engine(request=Request("t" * 32, state, **values))


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (up(storage=stored(sealed=chk(path="s3://b/t/savepoint-a-1"))), "Upgrade/Seal"),
        (
            up(engine=request("Failed", cause="x"), storage=stored(sealed=chk(path="s3://b/t/savepoint-a-1"))),
            "Upgrade/Seal",
        ),
        (up(engine=request("Completed", location="s3://b/t/savepoint-a-1"), storage=stored()), "Upgrade/Seal"),
        (up(engine=request("InProgress"), storage=stored()), "Upgrade/Stop"),
        (up(engine=request("Failed", cause="AccessDenied"), storage=stored()), "retry"),
        (up(engine=request("Unknown"), storage=stored()), "StopWithSavepoint"),
        (up(engine=engine(None), storage=stored()), "Upgrade/Stop"),
        (up(engine=engine("RESTARTING"), storage=stored()), "again"),
        (up(engine=request("Unknown"), storage=stored(error="away")), "Upgrade/Stop"),
    ],
    ids=[
        "on-storage",
        "on-storage-though-failed",
        "reported",
        "going-on",
        "failed",
        "unknown",
        "silent",
        "failed-over",
        "storage-away",
    ],
)
def test_the_outcome_of_the_savepoint_decides_the_next_step(seen: Observation, expected: str) -> None:
    decision = decide(in_step("Upgrade", "Stop", seen, **NOT_SET))
    op = decision.status.operation
    assert op is not None
    if expected == "retry":
        assert (op.trigger_id, op.retry_at) == (None, NOW + timedelta(seconds=10))
        assert "SavepointFailed" in reasons(decision)
    elif expected == "again":
        assert op.trigger_id is None
    elif expected == "StopWithSavepoint":
        assert isinstance(decision.action, actions.StopWithSavepoint)
        assert decision.action.trigger_id == "t" * 32, "the same id: asking twice stops once"
    else:
        assert step(decision) == expected


def test_a_savepoint_older_than_the_job_is_not_its_end() -> None:
    old = chk(path="s3://b/t/savepoint-a-1", checkpoint_id=5)
    decision = decide(
        in_step("Upgrade", "Stop", up(engine=request("Failed", cause="x"), storage=stored(sealed=old)), **NOT_SET)
    )
    assert step(decision) == "Upgrade/Stop"
    assert "SavepointFailed" in reasons(decision)


def test_repeated_failures_are_reported() -> None:
    ctx = in_step(
        "Upgrade",
        "Stop",
        up(engine=request("Failed", cause="AccessDenied"), storage=stored()),
        **{**NOT_SET, "attempt": 2},
    )
    stalled = decide(ctx).status.condition("Stalled")
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "SavepointFailed")
    assert "last-state" in stalled.message


def test_the_teardown_waits_until_the_savepoint_is_verified() -> None:
    restore = Restore(kind="Savepoint", path=SAVEPOINT, checkpoint_id=8)
    waiting = decide(in_step("Upgrade", "Seal", up(storage=stored()), restore=restore))
    assert (step(waiting), action(waiting)) == ("Upgrade/Seal", "")
    good = {SAVEPOINT: Verdict(SAVEPOINT, ok=True, checkpoint_id=8)}
    sealed = decide(in_step("Upgrade", "Seal", up(storage=stored(verdicts=good)), restore=restore))
    assert step(sealed) == "Upgrade/Teardown"
    assert sealed.status.next_restore is not None
    assert sealed.status.next_restore.path == SAVEPOINT, "the way back is written before the pods go"


def test_a_torn_savepoint_of_a_stopped_job_waits_for_a_person() -> None:
    restore = Restore(kind="Savepoint", path=SAVEPOINT)
    torn = {SAVEPOINT: Verdict(SAVEPOINT, ok=False, reason="3 files are missing")}
    decision = decide(
        in_step("Upgrade", "Seal", up(engine=engine("FINISHED"), storage=stored(verdicts=torn)), restore=restore)
    )
    stalled = decision.status.condition("Stalled")
    assert step(decision) == "Upgrade/Seal"
    assert stalled is not None
    assert stalled.reason == "SnapshotTorn"
