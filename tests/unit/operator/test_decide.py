"""The decision table: one test per row, and the rules about what may be given up when."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.api.status import Nonces, Rejected, Restore, Superseded
from penstock_operator.errors import Problem
from penstock_operator.reconcile import plan
from penstock_operator.reconcile.context import FLOWS, Context
from penstock_operator.reconcile.decide import decide
from penstock_operator.reconcile.observation import (
    ActionResult,
    CheckPod,
    CheckProblem,
    Observation,
    Request,
    SnapshotObject,
    Trouble,
    Verdict,
)
from penstock_operator.reconcile.spec_diff import fingerprint
from penstock_operator.reconcile.steps import STEPS
from tests.unit.operator.facts import (
    CHK,
    NOW,
    SAVEPOINT,
    ago,
    chk,
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

if TYPE_CHECKING:
    from penstock_operator.reconcile.plan import Decision

OTHER = make_spec(image="job:2")


def knows(*specs: Any) -> dict[str, Any]:
    return {revision(s): s.to_manifest() for s in (make_spec(), *specs)}


def action(decision: Decision) -> str:
    return type(decision.action).__name__ if decision.action else ""


def step(decision: Decision) -> str:
    op = decision.status.operation
    return f"{op.kind}/{op.step}" if op else ""


def reasons(decision: Decision) -> list[str]:
    return [e.reason for e in decision.events]


def test_every_flow_is_made_of_known_steps() -> None:
    assert {s for flow in FLOWS.values() for s in flow} == set(STEPS)


def test_a_settled_job_is_left_alone() -> None:
    decision = decide(make_context())
    assert (action(decision), step(decision), decision.events) == ("", "", ())
    assert decision.requeue == timedelta(seconds=15)


def test_the_finalizer_comes_before_everything() -> None:
    decision = decide(
        make_context(subject={"finalizer": False}, running=None, stable_revision=None, seen=Observation())
    )
    assert action(decision) == "AddFinalizer"


def test_leftovers_of_an_earlier_job_are_waited_for() -> None:
    decision = decide(make_context(seen=Observation(foreign=("Deployment weather-master",)), running=None))
    assert (action(decision), step(decision)) == ("", "")
    ready = decision.status.condition("Ready")
    assert ready is not None
    assert ready.reason == "NameTaken"


def test_the_revision_is_stored_before_the_operation_begins() -> None:
    first = decide(make_context(OTHER))
    assert isinstance(first.action, plan.RecordRevision)
    assert step(first) == ""
    second = decide(make_context(OTHER, seen=up(revisions=knows(OTHER))))
    assert (step(second), action(second)) == ("Upgrade/Check", "")


@pytest.mark.parametrize(
    ("spec", "status", "seen", "kind"),
    [
        (make_spec(), {"running": None, "stable_revision": None}, Observation(), "Deploy/Verify"),
        (make_spec(job={"state": "suspended"}), {"running": None, "stable_revision": None}, Observation(), ""),
        (make_spec(), {"running": None, "next_restore": Restore(kind="Savepoint", path=SAVEPOINT)}, Observation(), "Resume/Verify"),
        (OTHER, {}, up(), "Upgrade/Check"),
        (make_spec(job={"state": "suspended"}), {}, up(), "Suspend/Stop"),
        (make_spec(job={"parallelism": 4}), {}, up(), "Rescale/AddWorkers"),
        (make_spec(worker={"replicas": 5}), {}, up(), "Rescale/AddWorkers"),
        (make_spec(job={"savepointRedeployNonce": 1, "initialSavepointPath": SAVEPOINT}), {}, up(), "Redeploy/Verify"),
        (
            make_spec(job={"savepointRedeployNonce": 1, "initialSavepointPath": SAVEPOINT}),
            {"nonces": Nonces(savepoint_redeploy=1)},
            up(),
            "",
        ),
        (make_spec(), {}, up(master=None, pods=(), engine=engine(None)), "Recover/Start"),
        (make_spec(), {}, up(master=None, pods=(), engine=engine(None), storage=stored(None)), ""),
        (make_spec(), {"phase": "Failed", "phase_since": ago(60)}, up(engine=engine("FAILED")), "Recover/Seal"),
        (make_spec(), {"phase": "Failed", "phase_since": ago(1)}, up(engine=engine("FAILED")), ""),
        (make_spec(recovery={"restartFailed": False}), {"phase": "Failed", "phase_since": ago(900)}, up(engine=engine("FAILED")), ""),
        (make_spec(), {"running": make_running(finished_at=ago(9))}, up(pods=(), engine=engine(None)), ""),
        (OTHER, {"running": make_running(finished_at=ago(9))}, up(pods=(), engine=engine(None)), "Upgrade/Check"),
    ],
    ids=[
        "never-ran", "born-suspended", "suspended", "new-image", "suspend", "rescale", "spares", "redeploy",
        "redeploy-done", "master-gone", "master-and-state-gone", "failed", "failed-just-now", "failed-and-left",
        "finished", "finished-and-edited",
    ],
)  # fmt: skip
def test_which_operation_begins(spec: Any, status: dict[str, Any], seen: Observation, kind: str) -> None:
    seen = replace(seen, revisions=knows(spec))
    decision = decide(make_context(spec, seen=seen, **status))
    assert step(decision) == kind
    if kind:
        assert action(decision) == "", "the intent is written before anything is done"
        assert reasons(decision)[0].endswith("Started")


def test_a_rejected_spec_starts_nothing_but_is_still_rescaled() -> None:
    spec = make_spec(image="job:2", job={"parallelism": 4})
    rejected = Rejected(
        fingerprint=fingerprint(spec), revision=revision(spec), generation=2, reason="CheckFailed", time=NOW
    )
    decision = decide(make_context(spec, seen=up(revisions=knows(spec)), rejected=rejected))
    assert step(decision) == "Rescale/AddWorkers"
    settled = decide(
        make_context(OTHER, seen=up(revisions=knows(OTHER)), rejected=replace_fingerprint(rejected, OTHER))
    )
    assert step(settled) == ""
    stalled = settled.status.condition("Stalled")
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "CheckFailed")


def replace_fingerprint(rejected: Rejected, spec: Any) -> Rejected:
    return rejected.model_copy(update={"fingerprint": fingerprint(spec)})


def test_an_invalid_spec_starts_nothing_but_the_job_is_still_recovered() -> None:
    seen = up(master=None, pods=(), engine=engine(None))
    ctx = replace(make_context(seen=seen), spec=None, problems=(Problem("spec.image", "is wrong", "Mend it."),))
    decision = decide(ctx)
    assert step(decision) == "Recover/Start"
    quiet = decide(replace(ctx, seen=up()))
    stalled = quiet.status.condition("Stalled")
    assert stalled is not None
    assert stalled.message == "spec.image: is wrong. Mend it."
    assert step(quiet) == ""


# --- giving up --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "spec", "given_up"),
    [
        (make_op("Upgrade", "Check", target_revision=revision(OTHER)), make_spec(), True),
        (make_op("Upgrade", "Stop", target_revision=revision(OTHER)), make_spec(), True),
        (make_op("Upgrade", "Stop", target_revision=revision(OTHER), trigger_id="t" * 32), make_spec(), False),
        (make_op("Upgrade", "Seal", target_revision=revision(OTHER)), make_spec(), False),
        (make_op("Upgrade", "Teardown", target_revision=revision(OTHER)), make_spec(), False),
        (make_op("Upgrade", "Start", target_revision=revision(OTHER)), make_spec(), False),
        (make_op("Upgrade", "Watch", target_revision=revision(OTHER)), make_spec(), True),
        (make_op("Upgrade", "Check", target_revision=revision(OTHER)), OTHER, False),
        (
            make_op("Upgrade", "Check", target_revision=revision(OTHER)),
            make_spec(image="job:2", job={"state": "suspended"}),
            True,
        ),
        (make_op("Suspend", "Stop"), make_spec(), True),
        (make_op("Suspend", "Stop", trigger_id="t" * 32), make_spec(), False),
        (make_op("Rescale", "AddWorkers", target_parallelism=4), OTHER, True),
        (make_op("Rescale", "Rescale", target_parallelism=4, trigger_id="t" * 32), OTHER, False),
        (make_op("Rescale", "RemoveWorkers", target_parallelism=4), OTHER, False),
        (make_op("Rollback", "Teardown"), OTHER, False),
        (make_op("Rollback", "Watch"), OTHER, True),
        (make_op("Recover", "Teardown"), OTHER, False),
    ],
)
def test_what_a_newer_spec_gives_up(op: Any, spec: Any, given_up: bool) -> None:
    decision = decide(make_context(spec, operation=op, seen=up(revisions=knows(spec, OTHER))))
    assert ("Abandoned" in reasons(decision)) is given_up


def test_deletion_replaces_whatever_was_going_on() -> None:
    op = make_op("Upgrade", "Teardown")
    decision = decide(make_context(operation=op, subject={"deleting": True}))
    assert step(decision) == "Delete/Teardown"


# --- steps ------------------------------------------------------------------------------------------------------------


def in_step(
    kind: str, name: str, seen: Observation | None = None, *, spec: Any = OTHER, status: Any = None, **op: Any
) -> Context:
    op.setdefault("target_revision", revision(spec))
    seen = replace(seen or up(), revisions=knows(spec))
    return make_context(spec, seen=seen, operation=make_op(kind, name, **op), **(status or {}))


def test_the_check_runs_against_the_newest_checkpoint() -> None:
    decision = decide(in_step("Upgrade", "Check"))
    assert isinstance(decision.action, plan.RunCheck)
    assert decision.action.against == CHK


@pytest.mark.parametrize("kind", ["no", "stable"])
def test_a_check_that_is_not_needed(kind: str) -> None:
    if kind == "no":
        ctx = in_step("Upgrade", "Check", spec=make_spec(image="job:2", upgrade={"check": False}))
    else:
        ctx = in_step("Resume", "Check", spec=make_spec(), status={"running": None})
    assert step(decide(ctx)) in ("Upgrade/Stop", "Resume/Start")


@pytest.mark.parametrize(
    ("pod_state", "outcome"),
    [
        (CheckPod("c", "op", "Passed"), "Upgrade/Stop"),
        (CheckPod("c", "op", "Refused", (CheckProblem("STATE", "uid 'dedup' is gone", "Keep it"),)), "CheckFailed"),
        (CheckPod("c", "op", "Crashed", output="OOMKilled"), "CheckCrashed"),
        (CheckPod("c", "op", "Running"), "Upgrade/Check"),
        (
            CheckPod("c", "op", "Waiting", trouble=Trouble("ImagePullFailed", "no such image", "Correct it")),
            "Upgrade/Check",
        ),
    ],
)
def test_what_the_check_pod_says(pod_state: CheckPod, outcome: str) -> None:
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


def test_a_check_that_found_no_storage_is_made_again() -> None:
    found = CheckPod("c", "op", "Refused", (CheckProblem("STORAGE", "s3://bucket cannot be written: 403", "Grant it"),))
    first = decide(in_step("Upgrade", "Check", up(check=found)))
    assert (step(first), action(first)) == ("Upgrade/Check", "")
    assert first.status.rejected is None, "it may be mended without an edit"
    stalled = first.status.condition("Stalled")
    assert stalled is not None
    assert (stalled.reason, stalled.status) == ("StorageUnavailable", "True")
    assert "403. Grant it" in stalled.message
    later = decide(in_step("Upgrade", "Check", up(check=found), retry_at=ago(1), attempt=1, blocked=stalled.reason))
    assert later.action == plan.DeleteCheck("c")
    assert later.status.operation is not None
    assert later.status.operation.retry_at is None


def test_a_check_pod_of_another_operation_is_removed() -> None:
    decision = decide(in_step("Upgrade", "Check", up(check=CheckPod("old", "other", "Passed"))))
    assert isinstance(decision.action, plan.DeleteCheck)


def test_folder_and_trigger_are_in_the_status_before_the_engine_is_asked() -> None:
    decision = decide(in_step("Upgrade", "Stop"))
    assert isinstance(decision.action, plan.StopWithSavepoint)
    op = decision.status.operation
    assert op is not None
    assert (op.target_directory, op.trigger_id) == (decision.action.directory, decision.action.trigger_id)
    assert op.deadline is not None
    assert decision.action.directory.startswith("s3://bucket/savepoints/default/weather-uid-1/op-1")


ASKED: dict[str, Any] = {"trigger_id": "t" * 32, "target_directory": "s3://b/t", "stop_job_id": "a" * 32, "attempt": 1}


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
def test_what_becomes_of_the_savepoint(seen: Observation, expected: str) -> None:
    decision = decide(in_step("Upgrade", "Stop", seen, **ASKED))
    op = decision.status.operation
    assert op is not None
    if expected == "retry":
        assert (op.trigger_id, op.retry_at) == (None, NOW + timedelta(seconds=10))
        assert "SavepointFailed" in reasons(decision)
    elif expected == "again":
        assert op.trigger_id is None
    elif expected == "StopWithSavepoint":
        assert isinstance(decision.action, plan.StopWithSavepoint)
        assert decision.action.trigger_id == "t" * 32, "the same id: asking twice stops once"
    else:
        assert step(decision) == expected


def test_a_savepoint_that_the_job_has_outrun_is_not_its_end() -> None:
    old = chk(path="s3://b/t/savepoint-a-1", checkpoint_id=5)
    decision = decide(
        in_step("Upgrade", "Stop", up(engine=request("Failed", cause="x"), storage=stored(sealed=old)), **ASKED)
    )
    assert step(decision) == "Upgrade/Stop"
    assert "SavepointFailed" in reasons(decision)


def test_repeated_failures_tell_a_person() -> None:
    ctx = in_step(
        "Upgrade",
        "Stop",
        up(engine=request("Failed", cause="AccessDenied"), storage=stored()),
        **{**ASKED, "attempt": 2},
    )
    stalled = decide(ctx).status.condition("Stalled")
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "SavepointFailed")
    assert "last-state" in stalled.message


def test_nothing_is_torn_down_before_the_savepoint_is_verified() -> None:
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


def test_pods_go_and_are_waited_for() -> None:
    restore = Restore(kind="Savepoint", path=SAVEPOINT)
    first = decide(in_step("Upgrade", "Teardown", restore=restore, take_newest=True))
    assert isinstance(first.action, plan.ScaleDown)
    down = {"master": deployment(replicas=0), "worker": deployment("worker", replicas=0)}
    second = decide(in_step("Upgrade", "Teardown", up(**down), restore=restore, take_newest=True))
    assert (step(second), action(second)) == ("Upgrade/Teardown", "")
    third = decide(in_step("Upgrade", "Teardown", up(**down, pods=()), restore=restore, take_newest=True))
    assert isinstance(third.action, plan.FenceIncarnation)
    fenced = up(**down, pods=(), last=ActionResult("FenceIncarnation", ok=True))
    fourth = decide(in_step("Upgrade", "Teardown", fenced, restore=restore, take_newest=True))
    assert (step(fourth), action(fourth)) == ("Upgrade/Teardown", ""), "storage is read once more, after the fence"
    fifth = decide(in_step("Upgrade", "Teardown", up(**down, pods=()), restore=restore, take_newest=True, fenced=True))
    assert step(fifth) == "Upgrade/Start"


LOST = pod(terminating=True, node_lost=True, ready=False)
DOWN: dict[str, Any] = {"master": deployment(replicas=0), "worker": deployment("worker", replicas=0), "pods": (LOST,)}


def tearing_down(seen: Observation, since: float = 600, **op: Any) -> Decision:
    restore = Restore(kind="Savepoint", path=SAVEPOINT)
    return decide(in_step("Upgrade", "Teardown", seen, restore=restore, step_since=ago(since), **op))


def test_pods_on_a_lost_node_are_fenced_off_before_they_are_given_up() -> None:
    assert action(tearing_down(up(**DOWN), since=60)) == "", "they may still come back"
    assert action(tearing_down(up(**DOWN))) == "FenceIncarnation"
    done = tearing_down(up(**DOWN, last=ActionResult("FenceIncarnation", ok=True)))
    assert "PodsAbandoned" in reasons(done)
    forced = tearing_down(up(**DOWN), fenced=True)
    assert isinstance(forced.action, plan.ForceDelete)
    assert forced.action.names == (LOST.name,)


@pytest.mark.parametrize(("pods", "goes_on"), [((LOST,), False), ((), True)])
def test_without_a_fence_only_pods_that_were_seen_to_end_are_left_behind(pods: Any, goes_on: bool) -> None:
    refused = ActionResult("FenceIncarnation", ok=False, code="StorageUnavailable", message="AccessDenied")
    decision = tearing_down(up(**{**DOWN, "pods": pods, "last": refused}))
    op = decision.status.operation
    assert op is not None
    assert op.fenced is goes_on
    assert (op.blocked == "StorageUnavailable") is not goes_on


def test_the_job_id_of_the_next_incarnation_is_written_before_its_pods_exist() -> None:
    ctx = in_step("Upgrade", "Start", up(pods=()), restore=Restore(kind="Savepoint", path=SAVEPOINT))
    decision = decide(ctx)
    assert isinstance(decision.action, plan.ApplyPods)
    op = decision.status.operation
    assert op is not None
    assert op.job_id == decision.action.incarnation.job_id != make_running().job_id


def test_no_start_while_pods_of_the_former_incarnation_are_there() -> None:
    decision = decide(in_step("Upgrade", "Start", restore=Restore(kind="Savepoint", path=SAVEPOINT)))
    assert action(decision) == ""


def test_the_first_checkpoint_is_asked_for() -> None:
    fresh = replace(engine(), checkpoints=replace(engine().checkpoints, completed=0))
    running = make_running(OTHER, stable=False)
    ctx = in_step(
        "Upgrade", "Watch", up(engine=fresh, storage=stored(None)), status={"running": running}, step_since=ago(30)
    )
    assert isinstance(decide(ctx).action, plan.TriggerCheckpoint)


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


def test_stable_is_running_with_a_checkpoint_of_its_own() -> None:
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
def test_an_unstable_revision_is_rolled_back_and_remembered(seen: Observation, op: dict[str, Any]) -> None:
    decision = watching(seen, **op)
    found = decision.status.operation
    assert found is not None
    assert (found.kind, found.step, found.target_revision) == ("Rollback", "Teardown", revision())
    assert found.restore is not None
    assert found.restore.path == SAVEPOINT
    assert decision.status.rejected is not None
    assert decision.status.rejected.fingerprint == fingerprint(OTHER)


def test_without_rollback_it_is_left_and_explained() -> None:
    spec = make_spec(image="job:2", rollback={"enabled": False})
    running = make_running(spec, stable=False, had_checkpoint=False)
    seen = up(engine=NONE_YET, storage=stored(None))
    ctx = in_step("Upgrade", "Watch", seen, spec=spec, status={"running": running}, **{**WATCH, "deadline": ago(1)})
    stalled = decide(ctx).status.condition("Stalled")
    assert stalled is not None
    assert stalled.reason == "UpgradeFailed"


def test_workers_first_on_the_way_up() -> None:
    spec = make_spec(job={"parallelism": 4})
    first = decide(in_step("Rescale", "AddWorkers", spec=spec, target_revision=revision(), target_parallelism=4))
    assert isinstance(first.action, plan.ScaleWorkers)
    more = up(worker=deployment("worker", replicas=4), engine=engine(slots_total=3))
    waiting = decide(in_step("Rescale", "AddWorkers", more, spec=spec, target_parallelism=4))
    assert step(waiting) == "Rescale/AddWorkers"
    enough = replace(more, engine=engine(slots_total=4, parallelism=2))
    going = decide(in_step("Rescale", "AddWorkers", enough, spec=spec, target_parallelism=4))
    assert step(going) == "Rescale/Rescale"


def test_missing_slots_are_explained_while_the_job_goes_on() -> None:
    spec = make_spec(job={"parallelism": 4})
    trouble = Trouble("Unschedulable", "no node takes the pod", "Add nodes")
    seen = up(worker=deployment("worker", replicas=4), pods=(pod(), pod("worker", ready=False, trouble=trouble)))
    stalled = decide(in_step("Rescale", "AddWorkers", seen, spec=spec, target_parallelism=4)).status.condition(
        "Stalled"
    )
    assert stalled is not None
    assert stalled.reason == "Unschedulable"
    assert "goes on with parallelism 2" in stalled.message


def test_the_job_first_on_the_way_down() -> None:
    spec = make_spec(job={"parallelism": 1})
    up_front = decide(in_step("Rescale", "AddWorkers", spec=spec, target_parallelism=1))
    assert (step(up_front), action(up_front)) == ("Rescale/Rescale", "")
    asked = decide(in_step("Rescale", "Rescale", up(engine=engine(parallelism=2)), spec=spec, target_parallelism=1))
    assert isinstance(asked.action, plan.Rescale)
    done = decide(in_step("Rescale", "Rescale", up(engine=engine(parallelism=1)), spec=spec, target_parallelism=1))
    assert step(done) == "Rescale/RemoveWorkers"
    status = {"running": make_running(parallelism=1)}
    last = decide(in_step("Rescale", "RemoveWorkers", up(), spec=spec, target_parallelism=1, status=status))
    assert isinstance(last.action, plan.ApplyParallelism)
    assert last.action.replicas == 1


@pytest.mark.parametrize("savepoint", [True, False])
def test_deletion_takes_a_savepoint_only_if_asked_to(savepoint: bool) -> None:
    spec = make_spec(deletion={"savepoint": savepoint})
    begun = decide(make_context(spec, subject={"deleting": True}))
    assert step(begun) == ("Delete/Stop" if savepoint else "Delete/Teardown")


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


@pytest.mark.parametrize("spec", [None, make_spec()])
def test_deletion_works_with_an_empty_status(spec: Any) -> None:
    ctx = make_context(subject={"deleting": True}, running=None, stable_revision=None, seen=Observation())
    assert action(decide(replace(ctx, spec=spec))) == "RemoveFinalizer"


def test_storage_that_cannot_be_deleted_does_not_hold_deletion_up() -> None:
    spec = make_spec(deletion={"storage": "Delete"})
    failed = ActionResult("DisposeJobStorage", ok=False, code="StorageUnavailable", message="away")
    op = make_op("Delete", "Dispose", attempt=3)
    decision = decide(make_context(spec, seen=up(last=failed), operation=op, subject={"deleting": True}))
    assert action(decision) == "RemoveFinalizer"
    assert "StorageKept" in reasons(decision)


# --- upkeep -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (up(missing=("Service weather-rest",)), "ApplyChildren"),
        (up(worker=None), "ApplyPods"),
        (up(worker=deployment("worker", drifted=True)), "ApplyPods"),
        (up(master=deployment(drifted=True)), "ApplyPods"),
        (up(check=CheckPod("stray", "old", "Passed")), "DeleteCheck"),
    ],
)
def test_what_is_repaired(seen: Observation, expected: str) -> None:
    assert action(decide(make_context(seen=seen))) == expected


def test_a_finished_job_lets_its_pods_go() -> None:
    decision = decide(make_context(running=make_running(finished_at=ago(5)), seen=up(engine=engine("FINISHED"))))
    assert action(decision) == "ScaleDown"


def superseded(*ids: str) -> dict[str, Any]:
    return {"superseded": tuple(Superseded(job_id=i) for i in ids)}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, "DisposeJobStorage"),
        ({"running": make_running(stable=False)}, ""),
        ({"running": make_running(job_id="b" * 32)}, ""),
        (
            {
                "running": make_running(
                    stable=False,
                    restored_from=Restore(kind="Checkpoint", path=f"s3://bucket/checkpoints/{'b' * 32}/chk-1"),
                )
            },
            "",
        ),
    ],
    ids=["proved", "not-yet-proved", "never-its-own", "restored-from-it"],
)
def test_checkpoints_of_former_incarnations_are_removed_when_nothing_needs_them(
    status: dict[str, Any], expected: str
) -> None:
    seen = up(engine=replace(engine(), checkpoints=replace(engine().checkpoints, completed=0)))
    assert action(decide(make_context(seen=seen, **superseded("b" * 32), **status))) == expected


def test_what_cannot_be_removed_is_tried_again_and_then_told() -> None:
    failed = ActionResult("DisposeJobStorage", ok=False, code="StorageUnavailable", message="AccessDenied")
    again = decide(make_context(seen=up(last=failed), **superseded("b" * 32)))
    assert again.status.superseded[0].retry_at == NOW + timedelta(minutes=10)
    assert action(decide(make_context(superseded=again.status.superseded))) == ""
    tired = (Superseded(job_id="b" * 32, failures=4),)
    last = decide(make_context(seen=up(last=failed), superseded=tired))
    assert last.status.superseded == ()
    assert "CheckpointsKept" in reasons(last)


def test_a_nonce_becomes_one_snapshot() -> None:
    spec = make_spec(job={"savepointTriggerNonce": 4})
    asked = decide(make_context(spec))
    assert isinstance(asked.action, plan.CreateSnapshot)
    there = SnapshotObject(asked.action.name, "nonce", "savepoint", "Pending")
    done = decide(make_context(spec, seen=up(snapshots=(there,))))
    assert done.status.nonces.savepoint_trigger == 4
    assert action(decide(make_context(spec, seen=up(snapshots=(there,)), nonces=Nonces(savepoint_trigger=4)))) == ""


def test_a_checkpoint_seen_on_storage_is_remembered() -> None:
    """Else the job could be started empty when its checkpoints are lost later."""
    running = make_running(had_checkpoint=False)
    decision = decide(make_context(running=running, seen=up(engine=engine(None), storage=stored(chk()))))
    assert decision.status.running is not None
    assert decision.status.running.had_checkpoint


def test_old_revisions_are_pruned_but_never_those_in_use() -> None:
    many = {f"weather-{i:010d}": make_spec().to_manifest() for i in range(14)}
    decision = decide(make_context(seen=up(revisions={**many, **knows()})))
    assert isinstance(decision.action, plan.PruneRevisions)
    assert len(decision.action.names) == 5
    assert revision() not in decision.action.names


def test_a_refused_action_is_not_tried_again_in_the_same_pass() -> None:
    refused = ActionResult("ApplyPods", ok=False, code="Denied", message="exceeded quota: pods")
    ctx = in_step("Upgrade", "Start", up(pods=(), last=refused), restore=Restore(kind="Savepoint", path=SAVEPOINT))
    decision = decide(ctx)
    assert action(decision) == ""
    stalled = decision.status.condition("Stalled")
    assert stalled is not None
    assert stalled.reason == "Denied"
    assert "quota" in stalled.message
