"""The decision table: standby pods of a new revision, the conditions for them, and their start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock_operator.api.status.snapshots import Restore
from penstock_operator.reconcile.core import decide
from penstock_operator.reconcile.decide import actions
from penstock_operator.reconcile.decide.operations.prepare import PATIENCE
from penstock_operator.reconcile.observation import ActionResult, Observation, Trouble
from tests.unit.operator.contexts import (
    SAVEPOINT,
    ago,
    deployment,
    engine,
    make_running,
    make_spec,
    pod,
    revision,
    stored,
    up,
)
from tests.unit.operator.decisions import action, in_step, reasons, step

WARM = make_spec(image="job:2", upgrade={"warmStart": True})
STANDBY = "b" * 32
MADE = {role: deployment(role, job_id=STANDBY, revision=revision(WARM), standby=True) for role in ("master", "worker")}
WAITING = (
    pod(job_id=STANDBY, name="new-master", ready=False),
    pod("worker", job_id=STANDBY, name="new-1"),
    pod("worker", job_id=STANDBY, name="new-2"),
)
OWN = Restore(kind="Savepoint", path=SAVEPOINT, checkpoint_id=8)
STOPPED: dict[str, Any] = {
    "standby": STANDBY,
    "restore": OWN,
    "take_newest": True,
    "target_directory": SAVEPOINT.rpartition("/")[0],
}


def running_seen(**changes: Any) -> Observation:
    """Return an observation of objects that this version of the operator creates."""
    return up(master=deployment(same_made=True), worker=deployment("worker", same_made=True), **changes)


def preparing(seen: Observation, spec: Any = WARM, **op: Any) -> Any:
    return decide(in_step("Upgrade", "Prepare", seen, spec=spec, **op))


def test_a_job_of_a_former_operator_keeps_its_service_until_its_next_start() -> None:
    decision = preparing(running_seen())
    assert isinstance(decision.action, actions.CreateStandby)
    new, old = decision.action.incarnation, decision.action.running
    assert (old.job_id, old.service_suffix, old.warm) == (make_running().job_id, "", False)
    assert (new.service_suffix, new.warm, new.parallelism) == ("-1", True, old.parallelism)
    assert new.job_id != old.job_id
    assert decision.status.operation is not None
    assert decision.status.operation.standby == new.job_id, "it is written before anything is made"


@pytest.mark.parametrize(("service_suffix", "other"), [("-1", "-2"), ("-2", "-1"), ("-b", "-1")])
def test_both_incarnations_have_separate_services(service_suffix: str, other: str) -> None:
    again = decide(
        in_step(
            "Upgrade",
            "Prepare",
            running_seen(),
            spec=WARM,
            status={"running": make_running(service_suffix=service_suffix)},
        )
    )
    assert isinstance(again.action, actions.CreateStandby)
    assert (again.action.running.service_suffix, again.action.incarnation.service_suffix) == (service_suffix, other)


@pytest.mark.parametrize(
    ("spec", "seen"),
    [
        (make_spec(image="job:2"), running_seen()),
        (make_spec(image="job:2", upgrade={"warmStart": True}, job={"upgradeMode": "last-state"}), running_seen()),
        (make_spec(image="job:2", upgrade={"warmStart": True}, job={"upgradeMode": "stateless"}), running_seen()),
        (make_spec(image="job:2", upgrade={"warmStart": True}, job={"parallelism": 4}), running_seen()),
        (make_spec(image="job:2", upgrade={"warmStart": True}, worker={"slots": 2}), running_seen()),
        (make_spec(image="job:2", upgrade={"warmStart": True}, worker={"replicas": 3}), running_seen()),
        (WARM, running_seen(engine=engine("RESTARTING"))),
        (WARM, running_seen(engine=engine(None))),
        (WARM, up()),
    ],
    ids=[
        "not-asked",
        "last-state",
        "stateless",
        "rescaled",
        "fewer-pods",
        "more-pods",
        "restarting",
        "silent",
        "made-by-another-version",
    ],
)
def test_an_upgrade_without_standby_pods_uses_the_ordinary_steps(spec: Any, seen: Observation) -> None:
    decision = preparing(seen, spec)
    assert (step(decision), action(decision)) == ("Upgrade/Stop", "")
    assert decision.status.operation is not None
    assert decision.status.operation.standby is None


def test_the_upgrade_continues_when_all_standby_pods_run() -> None:
    some = preparing(up(**MADE, standby=WAITING[:2]), standby=STANDBY, deadline=ago(-30))
    assert (step(some), action(some)) == ("Upgrade/Prepare", "")
    ready = preparing(up(**MADE, standby=WAITING), standby=STANDBY, deadline=ago(-30))
    assert (step(ready), reasons(ready)) == ("Upgrade/Stop", ["StandbyReady"])
    assert ready.status.operation is not None
    assert ready.status.operation.standby == STANDBY


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (up(**MADE, standby=WAITING[:1]), str(PATIENCE)),
        (up(**MADE, standby=(replace(WAITING[0], restarts=1, last_end="Error, exit code 2"),)), "exit code 2"),
        (up(**MADE, standby=(pod(job_id=STANDBY, trouble=Trouble("Unschedulable", "no room", "Add")),)), "no room"),
        (up(last=ActionResult("CreateStandby", ok=False, code="Denied", message="by policy")), "by policy"),
    ],
    ids=["too-late", "crashed", "no-room", "refused"],
)
def test_standby_pods_that_do_not_start_are_reported_and_not_awaited(seen: Observation, words: str) -> None:
    decision = preparing(seen, standby=STANDBY, deadline=ago(1))
    assert (step(decision), reasons(decision)) == ("Upgrade/Stop", ["StandbyGivenUp"])
    assert words in decision.events[0].message
    assert decision.status.operation is not None
    assert decision.status.operation.standby is None


def stopping(seen: Observation, **op: Any) -> Any:
    return decide(in_step("Upgrade", "Stop", seen, spec=WARM, **op))


def test_an_abandoned_standby_is_removed_before_the_job_is_stopped() -> None:
    decision = stopping(up(**MADE, standby=WAITING))
    assert isinstance(decision.action, actions.ApplyPods)
    assert decision.action.incarnation.job_id == make_running().job_id
    assert (step(decision), decision.action.workers) == ("Upgrade/Stop", 2)
    assert action(stopping(up())) == "StopWithSavepoint"
    refused = ActionResult("ApplyPods", ok=False, code="Denied", message="by policy")
    assert action(stopping(up(**MADE, last=refused))) == "StopWithSavepoint", "the stop takes all pods away"
    assert action(stopping(up(**MADE, standby=WAITING), standby=STANDBY)) == "StopWithSavepoint"


def test_no_pods_are_on_standby_for_a_savepoint_that_keeps_failing() -> None:
    waiting = {"standby": STANDBY, "attempt": 1, "retry_at": ago(-10)}
    once = stopping(up(**MADE, standby=WAITING), **waiting)
    assert once.status.operation.standby == STANDBY
    reported = stopping(up(**MADE, standby=WAITING), **waiting, blocked="SavepointFailed")
    assert reasons(reported) == ["StandbyGivenUp"]
    assert (reported.status.operation.standby, reported.status.operation.blocked) == (None, "SavepointFailed")
    removed = stopping(up(**MADE), **{**waiting, "standby": None}, blocked="SavepointFailed")
    assert isinstance(removed.action, actions.ApplyPods)
    assert removed.status.operation.blocked == "SavepointFailed", "the failure must still be reported"


def test_no_pods_are_on_standby_for_a_job_that_cannot_be_stopped() -> None:
    patient = make_spec(image="job:2", upgrade={"warmStart": True, "checkpointFallback": False})
    seen = up(**MADE, standby=WAITING, engine=engine("RESTARTING"))

    def after(seconds: float, **op: Any) -> Any:
        return decide(in_step("Upgrade", "Stop", seen, spec=patient, standby=STANDBY, step_since=ago(seconds), **op))

    assert after(60).status.operation.standby == STANDBY
    assert (reasons(after(181)), after(181).status.operation.standby) == (["StandbyGivenUp"], None)
    assert after(181, trigger_id="t").status.operation.standby == STANDBY, "the savepoint is being made"


def test_the_number_of_pods_does_not_change_while_two_incarnations_exist() -> None:
    more = make_spec(image="job:2", upgrade={"warmStart": True}, job={"parallelism": 4}, worker={"replicas": 6})
    given = {**STOPPED, "fenced": True, "job_id": STANDBY, "target_revision": revision(WARM)}
    applied = decide(in_step("Upgrade", "Start", ended(), spec=more, **given))
    assert isinstance(applied.action, actions.ApplyPods)
    assert (applied.action.incarnation.parallelism, applied.action.workers) == (2, 2)
    beside = preparing(running_seen(), more, standby=STANDBY, deadline=ago(-30))
    assert isinstance(beside.action, actions.CreateStandby)
    assert beside.action.workers == 2
    left = decide(in_step("Upgrade", "Prepare", up(**MADE), spec=more).with_status(operation=None))
    assert isinstance(left.action, actions.ApplyPods)
    assert left.action.workers == 2


def handing_over(seen: Observation, spec: Any = WARM, **op: Any) -> Any:
    return decide(in_step("Upgrade", "Teardown", seen, spec=spec, **{**STOPPED, **op}))


def ended(state: str = "FINISHED", **changes: Any) -> Observation:
    return up(**MADE, standby=WAITING, engine=engine(state), storage=stored(None), **changes)


def test_the_old_pods_are_fenced_instead_of_awaited() -> None:
    assert action(handing_over(ended())) == "FenceIncarnation"
    fenced = handing_over(ended(last=ActionResult("FenceIncarnation", ok=True)))
    assert (step(fenced), action(fenced)) == ("Upgrade/Teardown", ""), "storage is read once more, after the fence"
    settled = handing_over(ended(), fenced=True)
    assert step(settled) == "Upgrade/Start"
    assert settled.status.operation is not None
    assert settled.status.operation.standby == STANDBY
    assert settled.status.operation.restore == OWN


def test_a_job_whose_savepoint_is_complete_gets_a_moment_to_end() -> None:
    decision = handing_over(ended("RUNNING"))
    assert (step(decision), action(decision)) == ("Upgrade/Teardown", "")
    assert decision.status.operation is not None
    assert decision.status.operation.standby == STANDBY
    assert decision.requeue is not None
    assert decision.requeue.total_seconds() < 1


@pytest.mark.parametrize(
    ("seen", "spec", "op"),
    [
        (ended("RUNNING"), WARM, {"step_since": ago(30)}),
        (ended("RESTARTING"), WARM, {"step_since": ago(30)}),
        (ended(), WARM, {"restore": OWN.model_copy(update={"path": "s3://bucket/elsewhere/chk-1"})}),
        (ended(), make_spec(image="job:3", upgrade={"warmStart": True}), {"target_revision": revision(WARM)}),
        (ended(), make_spec(image="job:2", upgrade={"warmStart": True}, job={"state": "suspended"}), {}),
        (ended(last=ActionResult("FenceIncarnation", ok=False, message="AccessDenied")), WARM, {}),
        (replace(ended(), master=deployment(), worker=deployment("worker")), WARM, {}),
    ],
    ids=["runs", "restarts", "not-its-savepoint", "another-edit", "suspended", "no-fence", "not-there"],
)
def test_any_irregularity_removes_all_pods_first(seen: Observation, spec: Any, op: dict[str, Any]) -> None:
    decision = handing_over(seen, spec, **op)
    assert (step(decision), action(decision)) == ("Upgrade/Teardown", "ScaleDown")
    assert decision.status.operation is not None
    assert decision.status.operation.standby is None


def test_the_standby_incarnation_is_recorded_as_running_before_its_release() -> None:
    applied = decide(in_step("Upgrade", "Start", ended(), spec=WARM, **STOPPED, fenced=True, job_id=STANDBY))
    assert isinstance(applied.action, actions.ApplyPods)
    assert (applied.action.incarnation.job_id, applied.action.incarnation.warm) == (STANDBY, True)
    plain = {role: replace(found, standby=False) for role, found in MADE.items()}
    started = decide(
        in_step("Upgrade", "Start", replace(ended(), **plain), spec=WARM, **STOPPED, fenced=True, job_id=STANDBY)  # type: ignore[arg-type]
    )
    assert (step(started), action(started)) == ("Upgrade/Watch", "")
    running = started.status.running
    assert running is not None
    assert (running.job_id, running.warm, running.service_suffix, running.restored_from) == (STANDBY, True, "-1", OWN)

    def watching(spec: Any = WARM, **op: Any) -> Any:
        seen = up(**plain, engine=engine(None), storage=stored(None), last=op.pop("last", None))
        state = {**STOPPED, "fenced": True, "job_id": STANDBY, "target_revision": revision(WARM), **op}
        return decide(in_step("Upgrade", "Watch", seen, spec=spec, status={"running": running}, **state))

    released = watching()
    assert released.action == actions.ReleaseIncarnation(STANDBY, SAVEPOINT)
    edited = watching(make_spec(image="job:3", upgrade={"warmStart": True}))
    assert isinstance(edited.action, actions.ReleaseIncarnation), "another edit comes after it"
    noted = watching(last=ActionResult("ReleaseIncarnation", ok=True))
    assert noted.status.operation is not None
    assert noted.status.operation.released
    failed = watching(last=ActionResult("ReleaseIncarnation", ok=False, message="503"))
    assert failed.status.operation is not None
    assert not failed.status.operation.released
    assert action(watching(released=True)) == ""


def test_pods_are_not_scaled_down_before_kubernetes_has_observed_which_incarnation_must_end() -> None:
    """A deletion follows immediately after the Deployments were applied.

    If the number changed now, neither of the two ReplicaSets would end.
    """
    plain = {role: replace(found, standby=False) for role, found in MADE.items()}
    both = up(**plain, pods=(pod(), pod("worker"), *WAITING))

    def torn_down(seen: Observation, seconds: float = 5) -> Any:
        return decide(in_step("Delete", "Teardown", seen, spec=WARM, step_since=ago(seconds)))

    assert action(torn_down(both)) == ""
    assert action(torn_down(both, 30)) == "ScaleDown"
    going = tuple(replace(p, terminating=True) for p in (pod(), pod("worker")))
    assert action(torn_down(replace(both, pods=(*going, *WAITING)))) == "ScaleDown"
    assert action(torn_down(up(**MADE, pods=both.pods))) == "ScaleDown", "a rollout takes any number"


def test_an_abandoned_standby_is_reverted_before_another_operation_starts() -> None:
    given_up = in_step("Upgrade", "Prepare", up(**MADE), spec=WARM)
    decision = decide(given_up.with_status(operation=None))
    assert isinstance(decision.action, actions.ApplyPods)
    assert decision.action.incarnation.job_id == make_running().job_id
    assert step(decision) == ""
