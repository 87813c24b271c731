"""The decision table: the teardown, start and trial of pods; rescaling; deletion."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.api.flinkjob import Deletion
from penstock_operator.api.status.snapshots import Restore, Superseded
from penstock_operator.reconcile.core import decide
from penstock_operator.reconcile.decide import actions
from penstock_operator.reconcile.decide.spec_diff import fingerprint
from penstock_operator.reconcile.observation import ActionResult, Observation, Revisions, Trouble
from penstock_operator.settings import Settings
from tests.unit.operator.contexts import (
    NOW,
    SAVEPOINT,
    ago,
    deployment,
    engine,
    make_context,
    make_op,
    make_running,
    make_spec,
    pod,
    revision,
    stored,
    up,
)
from tests.unit.operator.decisions import OTHER, action, in_step, reasons, step

if TYPE_CHECKING:
    from penstock_operator.reconcile.decide.decision import Decision


def test_the_teardown_waits_until_pods_are_gone() -> None:
    restore = Restore(kind="Savepoint", path=SAVEPOINT)
    first = decide(in_step("Upgrade", "Teardown", restore=restore, take_newest=True))
    assert isinstance(first.action, actions.ScaleDown)
    down = {"master": deployment(replicas=0), "worker": deployment("worker", replicas=0)}
    second = decide(in_step("Upgrade", "Teardown", up(**down), restore=restore, take_newest=True))
    assert (step(second), action(second)) == ("Upgrade/Teardown", "")
    third = decide(in_step("Upgrade", "Teardown", up(**down, pods=()), restore=restore, take_newest=True))
    assert isinstance(third.action, actions.FenceIncarnation)
    fenced = up(**down, pods=(), last=ActionResult("FenceIncarnation", ok=True))
    fourth = decide(in_step("Upgrade", "Teardown", fenced, restore=restore, take_newest=True))
    assert (step(fourth), action(fourth)) == ("Upgrade/Teardown", ""), "storage is read once more, after the fence"
    fifth = decide(in_step("Upgrade", "Teardown", up(**down, pods=()), restore=restore, take_newest=True, fenced=True))
    assert step(fifth) == "Upgrade/Start"


def test_a_savepoint_is_never_replaced_by_the_checkpoint_its_incarnation_started_from() -> None:
    """The checkpoint numbers of two incarnations are unrelated: number 1 of this one is newer than number 6 of the last."""
    source = Restore(kind="Checkpoint", path="s3://bucket/checkpoints/former/chk-6", checkpoint_id=6)
    running = make_running(stable=False, had_checkpoint=False, restored_from=source)
    down = {"master": deployment(replicas=0), "worker": deployment("worker", replicas=0)}
    op = {
        "restore": Restore(kind="Savepoint", path=SAVEPOINT, checkpoint_id=1),
        "target_directory": SAVEPOINT.rpartition("/")[0],
        "take_newest": True,
        "fenced": True,
    }
    seen = up(**down, pods=(), storage=stored(None))
    decision = decide(in_step("Upgrade", "Teardown", seen, status={"running": running}, **op))
    assert step(decision) == "Upgrade/Start"
    assert decision.status.operation is not None
    assert decision.status.operation.restore is not None
    assert decision.status.operation.restore.path == SAVEPOINT


LOST = pod(terminating=True, node_lost=True, ready=False)
DOWN: dict[str, Any] = {"master": deployment(replicas=0), "worker": deployment("worker", replicas=0), "pods": (LOST,)}


def tearing_down(seen: Observation, since: float = 600, **op: Any) -> Decision:
    restore = Restore(kind="Savepoint", path=SAVEPOINT)
    return decide(in_step("Upgrade", "Teardown", seen, restore=restore, step_since=ago(since), **op))


def test_pods_on_a_lost_node_are_fenced_before_they_are_abandoned() -> None:
    assert action(tearing_down(up(**DOWN), since=60)) == "", "they may still come back"
    assert action(tearing_down(up(**DOWN))) == "FenceIncarnation"
    done = tearing_down(up(**DOWN, last=ActionResult("FenceIncarnation", ok=True)))
    assert "PodsAbandoned" in reasons(done)
    forced = tearing_down(up(**DOWN), fenced=True)
    assert isinstance(forced.action, actions.ForceDelete)
    assert forced.action.names == (LOST.name,)


@pytest.mark.parametrize(("pods", "continues"), [((LOST,), False), ((), True)])
def test_without_a_fence_only_pods_that_have_ended_are_abandoned(pods: Any, continues: bool) -> None:
    refused = ActionResult("FenceIncarnation", ok=False, code="StorageUnavailable", message="AccessDenied")
    decision = tearing_down(up(**{**DOWN, "pods": pods, "last": refused}))
    op = decision.status.operation
    assert op is not None
    assert op.fenced is continues
    assert (op.blocked == "StorageUnavailable") is not continues


def test_the_job_id_of_the_next_incarnation_is_written_before_its_pods_exist() -> None:
    ctx = in_step("Upgrade", "Start", up(pods=()), restore=Restore(kind="Savepoint", path=SAVEPOINT))
    decision = decide(ctx)
    assert isinstance(decision.action, actions.ApplyPods)
    op = decision.status.operation
    assert op is not None
    assert op.job_id == decision.action.incarnation.job_id != make_running().job_id


def test_a_start_waits_while_pods_of_the_former_incarnation_exist() -> None:
    decision = decide(in_step("Upgrade", "Start", restore=Restore(kind="Savepoint", path=SAVEPOINT)))
    assert action(decision) == ""


@pytest.mark.parametrize(("kind", "seconds"), [("Upgrade", 20), ("Rollback", 300)])
def test_a_rollback_has_more_time_than_the_upgrade(kind: str, seconds: int) -> None:
    spec = make_spec(image="job:2", rollback={"after": "20s"})
    seen = up(
        master=deployment("master", revision=revision(spec)), worker=deployment("worker", revision=revision(spec))
    )
    restore = Restore(kind="Savepoint", path=SAVEPOINT)
    found = decide(in_step(kind, "Start", seen, spec=spec, restore=restore, job_id=make_running().job_id))
    assert step(found) == f"{kind}/Watch"
    assert found.status.operation is not None
    assert found.status.operation.deadline == ago(-seconds)


def test_the_first_checkpoint_is_requested() -> None:
    fresh = replace(engine(), checkpoints=replace(engine().checkpoints, completed=0))
    running = make_running(OTHER, stable=False)
    ctx = in_step(
        "Upgrade", "Watch", up(engine=fresh, storage=stored(None)), status={"running": running}, step_since=ago(30)
    )
    assert isinstance(decide(ctx).action, actions.TriggerCheckpoint)


WATCH: dict[str, Any] = {
    "restore": Restore(kind="Savepoint", path=SAVEPOINT),
    "fallback_revision": revision(),
    "fallback_restore": Restore(kind="Savepoint", path=SAVEPOINT),
    "fallback_parallelism": 2,
}


def watching(seen: Observation, **op: Any) -> Decision:
    running = make_running(OTHER, stable=False, had_checkpoint=False)
    return decide(in_step("Upgrade", "Watch", seen, status={"running": running}, **{**WATCH, **op}))


NONE_YET = replace(engine(), checkpoints=replace(engine().checkpoints, completed=0))


def test_a_stable_job_is_running_with_its_own_checkpoint() -> None:
    assert watching(up()).status.operation is None
    assert step(watching(up(engine=NONE_YET, storage=stored(None)), trigger_id="t" * 32)) == "Upgrade/Watch"
    assert step(watching(up(engine=engine("RESTARTING"), storage=stored(None)))) == "Upgrade/Watch"


@pytest.mark.parametrize(
    ("seen", "op"),
    [
        (up(engine=NONE_YET, storage=stored(None)), {"deadline": ago(1)}),
        (up(engine=engine("FAILED"), storage=stored(None)), {}),
        (up(engine=engine(None), pods=(pod(restarts=3, ready=False),), storage=stored(None)), {}),
    ],
    ids=["too-late", "failed", "crash-loop"],
)
def test_an_unstable_revision_is_rolled_back_and_recorded(seen: Observation, op: dict[str, Any]) -> None:
    decision = watching(seen, **op)
    found = decision.status.operation
    assert found is not None
    assert (found.kind, found.step, found.target_revision) == ("Rollback", "Teardown", revision())
    assert found.restore is not None
    assert found.restore.path == SAVEPOINT
    assert decision.status.rejected is not None
    assert decision.status.rejected.fingerprint == fingerprint(OTHER)


def test_the_message_of_a_rejected_revision_contains_the_failure_of_the_job() -> None:
    reason = "the Python worker of slot 0 was killed: its container has used all of its 512Mi of memory"
    seen = up(
        engine=replace(engine("RESTARTING", exception=reason), checkpoints=NONE_YET.checkpoints), storage=stored(None)
    )
    decision = watching(seen, deadline=ago(1))
    assert decision.status.rejected is not None
    assert "the job is RESTARTING, no checkpoint completed" in decision.status.rejected.message
    assert reason in decision.status.rejected.message
    assert any(reason in event.message for event in decision.events)


EVICTED = Trouble("Evicted", "the pod failed: the node was low on memory", "Kubernetes replaces it")


def record(role: str = "master") -> Any:
    """Return the remaining record of an evicted pod."""
    return pod(role, name="former", ready=False, over=True, restarts=9, trouble=EVICTED)


def test_the_record_of_an_evicted_pod_does_not_affect_the_revision_on_trial() -> None:
    starting = up(engine=engine(None), pods=(record(), pod(ready=False)), storage=stored(None))
    assert step(watching(starting)) == "Upgrade/Watch"


def test_the_record_of_an_evicted_pod_is_no_problem() -> None:
    spec = make_spec(job={"parallelism": 4})
    pods = (record(), record("worker"), pod(), pod("worker"))
    seen = up(worker=deployment("worker", replicas=4), engine=engine(slots_total=3), pods=pods)
    waiting = decide(in_step("Rescale", "AddWorkers", seen, spec=spec, target_parallelism=4)).status
    assert waiting.operation is not None
    assert waiting.operation.blocked is None
    assert waiting.restarts == 9  # they belong to this incarnation and remain counted
    restarting = decide(make_context(seen=up(engine=engine("RESTARTING"), pods=pods)))
    stalled = restarting.status.condition("Stalled")
    assert stalled is not None
    assert (stalled.status, restarting.events) == ("False", ())


def test_without_rollback_the_revision_is_kept_and_explained() -> None:
    spec = make_spec(image="job:2", rollback={"enabled": False})
    running = make_running(spec, stable=False, had_checkpoint=False)
    seen = up(engine=NONE_YET, storage=stored(None))
    ctx = in_step("Upgrade", "Watch", seen, spec=spec, status={"running": running}, **{**WATCH, "deadline": ago(1)})
    stalled = decide(ctx).status.condition("Stalled")
    assert stalled is not None
    assert stalled.reason == "UpgradeFailed"


def test_workers_are_scaled_first_when_the_parallelism_grows() -> None:
    spec = make_spec(job={"parallelism": 4})
    first = decide(in_step("Rescale", "AddWorkers", spec=spec, target_revision=revision(), target_parallelism=4))
    assert isinstance(first.action, actions.ScaleWorkers)
    more = up(worker=deployment("worker", replicas=4), engine=engine(slots_total=3))
    waiting = decide(in_step("Rescale", "AddWorkers", more, spec=spec, target_parallelism=4))
    assert step(waiting) == "Rescale/AddWorkers"
    enough = replace(more, engine=engine(slots_total=4, parallelism=2))
    going = decide(in_step("Rescale", "AddWorkers", enough, spec=spec, target_parallelism=4))
    assert step(going) == "Rescale/Rescale"


def test_missing_slots_are_explained_while_the_job_keeps_running() -> None:
    spec = make_spec(job={"parallelism": 4})
    trouble = Trouble("Unschedulable", "no node accepts the pod", "Add nodes")
    seen = up(worker=deployment("worker", replicas=4), pods=(pod(), pod("worker", ready=False, trouble=trouble)))
    stalled = decide(in_step("Rescale", "AddWorkers", seen, spec=spec, target_parallelism=4)).status.condition(
        "Stalled"
    )
    assert stalled is not None
    assert stalled.reason == "Unschedulable"
    assert "keeps parallelism 2" in stalled.message


def test_the_job_is_scaled_first_when_the_parallelism_shrinks() -> None:
    spec = make_spec(job={"parallelism": 1})
    up_front = decide(in_step("Rescale", "AddWorkers", spec=spec, target_parallelism=1))
    assert (step(up_front), action(up_front)) == ("Rescale/Rescale", "")
    decision = decide(in_step("Rescale", "Rescale", up(engine=engine(parallelism=2)), spec=spec, target_parallelism=1))
    assert isinstance(decision.action, actions.Rescale)
    done = decide(in_step("Rescale", "Rescale", up(engine=engine(parallelism=1)), spec=spec, target_parallelism=1))
    assert step(done) == "Rescale/RemoveWorkers"
    status = {"running": make_running(parallelism=1)}
    last = decide(in_step("Rescale", "RemoveWorkers", up(), spec=spec, target_parallelism=1, status=status))
    assert isinstance(last.action, actions.ApplyParallelism)
    assert last.action.replicas == 1


@pytest.mark.parametrize("savepoint", [True, False])
def test_deletion_takes_a_savepoint_only_on_request(savepoint: bool) -> None:
    spec = make_spec(deletion={"savepoint": savepoint})
    decision = decide(make_context(spec, subject={"deleting": True}))
    assert step(decision) == ("Delete/Stop" if savepoint else "Delete/Teardown")


@pytest.mark.parametrize("name", ["Stop", "Seal", "Teardown"])
def test_deletion_always_ends(name: str) -> None:
    spec = make_spec(deletion={"savepoint": True, "timeout": "1m"})
    down = up(master=deployment(replicas=0), worker=deployment("worker", replicas=0))
    op = make_op(
        "Delete",
        name,
        started_at=ago(120),
        trigger_id="t" * 32 if name == "Stop" else None,
        restore=Restore(kind="Savepoint", path=SAVEPOINT),
    )
    decision = decide(make_context(spec, seen=down, operation=op, subject={"deleting": True}))
    assert step(decision) == ("Delete/Dispose" if name == "Teardown" else "Delete/Teardown")


@pytest.mark.parametrize(
    ("storage", "left", "seen", "expected"),
    [
        ("Delete", ("b" * 32,), Observation(), "Delete/Dispose"),
        ("Delete", (), Observation(), ""),
        ("Retain", ("b" * 32,), Observation(), ""),
        ("Delete", ("b" * 32,), up(), "Delete/Teardown"),
    ],
    ids=["checkpoints-left", "none-left", "kept", "pods-left"],
)
def test_deletion_of_a_job_that_does_not_run_starts_with_the_right_step(
    storage: str, left: tuple[str, ...], seen: Observation, expected: str
) -> None:
    waiting = tuple(Superseded(job_id=i) for i in left)
    spec = make_spec(deletion={"storage": storage})
    ctx = make_context(spec, subject={"deleting": True}, running=None, superseded=waiting, seen=seen)
    decision = decide(ctx)
    assert step(decision) == expected
    assert action(decision) == ("" if expected else "RemoveFinalizer")
    if expected == "Delete/Dispose":
        operation = decide(replace(ctx, status=decision.status)).status.operation
        assert operation is not None
        assert operation.deadline == NOW + Settings().dispose_timeout


@pytest.mark.parametrize("spec", [None, make_spec()])
def test_deletion_works_with_an_empty_status(spec: Any) -> None:
    ctx = make_context(subject={"deleting": True}, running=None, stable_revision=None, seen=Observation())
    assert action(decide(replace(ctx, spec=spec))) == "RemoveFinalizer"


def test_storage_that_cannot_be_deleted_does_not_block_deletion() -> None:
    spec = make_spec(deletion={"storage": "Delete"})
    failed = ActionResult("DisposeJobStorage", ok=False, code="StorageUnavailable", message="away")
    op = make_op("Delete", "Dispose", deadline=NOW + Settings().dispose_timeout)
    overdue = make_op("Delete", "Dispose", deadline=NOW)
    waiting = tuple(Superseded(job_id=letter * 32, revision=revision(), failures=2) for letter in "bcde")
    status: dict[str, Any] = {"operation": op, "running": None, "superseded": waiting}
    for number in range(8):
        status["operation"] = overdue if number == 7 else op
        ctx = make_context(spec, seen=up(last=failed), subject={"deleting": True}, **status)
        decision = decide(ctx)
        status["superseded"] = decision.status.superseded
        assert action(decision) == ("RemoveFinalizer" if number == 7 else ""), "all of its time is used"
    assert [e.message for e in decision.events if e.reason == "StorageKept"] == [
        "checkpoints in "
        + ", ".join(f"s3://bucket/checkpoints/{letter * 32}" for letter in "bcd")
        + " and 1 more could not be deleted: away"
    ]


def test_storage_that_hangs_does_not_block_deletion() -> None:
    spec = make_spec(deletion={"storage": "Delete"})
    op = make_op("Delete", "Dispose", deadline=ago(1), message="deleting checkpoints: 503 SlowDown")
    waiting = (Superseded(job_id="b" * 32),)
    decision = decide(make_context(spec, subject={"deleting": True}, operation=op, running=None, superseded=waiting))
    assert action(decision) == "RemoveFinalizer"
    assert (decision.events[0].reason, decision.events[0].message[-14:]) == ("StorageKept", ": 503 SlowDown")
    assert "b" * 32 in decision.events[-1].message, "it is among what is left"


@pytest.mark.parametrize("running", [None, make_running()], ids=["suspended", "running"])
@pytest.mark.parametrize(
    ("deletion", "stored", "expected"),
    [
        (Deletion(storage="Delete"), {}, "DisposeJobStorage"),
        (Deletion(), {"storage": "Delete"}, "RemoveFinalizer"),
        (None, {"storage": "Delete"}, "DisposeJobStorage"),
        (None, {}, "RemoveFinalizer"),
    ],
    ids=["said", "said-otherwise", "not-said-but-stored", "not-said"],
)
def test_deletion_of_a_job_with_an_invalid_spec_ends(
    running: Any, deletion: Deletion | None, stored: dict[str, str], expected: str
) -> None:
    spec = make_spec(deletion=stored)
    waiting = (Superseded(job_id="b" * 32, revision=revision(spec)),)
    op = make_op("Delete", "Dispose")
    seen = Observation(
        revisions=Revisions({"weather-0": {"image": 7}, revision(spec): spec.to_manifest(), "weather-1": {}})
    )
    ctx = make_context(seen=seen, subject={"deleting": True}, running=running, superseded=waiting, operation=op)
    assert action(decide(replace(ctx, spec=None, deletion=deletion))) == expected


def test_a_deployment_that_cannot_be_scaled_down_does_not_block_deletion() -> None:
    refused = ActionResult("ScaleDown", ok=False, code="Denied", message="admission webhook says no")
    for seconds, expected in ((30, "Delete/Teardown"), (400, "Delete/Dispose")):
        op = make_op("Delete", "Teardown", started_at=ago(seconds))
        decision = decide(make_context(seen=up(last=refused), subject={"deleting": True}, operation=op))
        assert step(decision) == expected
    assert "webhook says no" in str([e.message for e in decision.events if e.reason == "PodsAbandoned"])
