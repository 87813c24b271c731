"""The decision table: which operation starts, and when an operation may be abandoned. One test per row."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from penstock_operator.api.status.incarnation import HealthStatus
from penstock_operator.api.status.operation import Nonces, Rejected
from penstock_operator.api.status.snapshots import Restore
from penstock_operator.errors import Problem
from penstock_operator.reconcile.core import decide
from penstock_operator.reconcile.decide import actions
from penstock_operator.reconcile.decide.flows import FLOWS
from penstock_operator.reconcile.decide.operations import STEPS
from penstock_operator.reconcile.decide.spec_diff import fingerprint
from penstock_operator.reconcile.observation import ActionResult, Observation
from tests.unit.operator.contexts import (
    NOW,
    SAVEPOINT,
    ago,
    engine,
    make_context,
    make_op,
    make_running,
    make_spec,
    revision,
    stored,
    up,
)
from tests.unit.operator.decisions import OTHER, action, in_step, knows, reasons, step
from tests.unit.operator.world import World
from tests.unit.operator.world.scenarios.scenario import running
from tests.unit.operator.world.world import flinkjob


def test_every_flow_consists_of_known_steps() -> None:
    assert {s for flow in FLOWS.values() for s in flow} == set(STEPS)


def test_a_settled_job_is_not_changed() -> None:
    decision = decide(make_context())
    assert (action(decision), step(decision), decision.events) == ("", "", ())
    assert decision.requeue == timedelta(seconds=15)


def test_the_finalizer_comes_before_everything() -> None:
    decision = decide(
        make_context(subject={"finalizer": False}, running=None, stable_revision=None, seen=Observation())
    )
    assert action(decision) == "AddFinalizer"


def test_leftovers_of_an_earlier_job_are_awaited() -> None:
    decision = decide(make_context(seen=Observation(foreign=("Deployment weather-master",)), running=None))
    assert (action(decision), step(decision)) == ("", "")
    ready = decision.status.condition("Ready")
    assert ready is not None
    assert ready.reason == "NameTaken"


def test_the_revision_is_stored_before_the_operation_starts() -> None:
    first = decide(make_context(OTHER))
    assert isinstance(first.action, actions.RecordRevision)
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
def test_the_spec_and_the_status_decide_which_operation_starts(
    spec: Any, status: dict[str, Any], seen: Observation, kind: str
) -> None:
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
def test_a_newer_spec_abandons_an_operation(op: Any, spec: Any, given_up: bool) -> None:
    decision = decide(make_context(spec, operation=op, seen=up(revisions=knows(spec, OTHER))))
    assert ("Abandoned" in reasons(decision)) is given_up


def test_deletion_replaces_every_operation() -> None:
    op = make_op("Upgrade", "Teardown")
    decision = decide(make_context(operation=op, subject={"deleting": True}))
    assert step(decision) == "Delete/Teardown"


def test_a_refused_action_is_not_retried_in_the_same_pass() -> None:
    refused = ActionResult("ApplyPods", ok=False, code="Denied", message="exceeded quota: pods")
    ctx = in_step("Upgrade", "Start", up(pods=(), last=refused), restore=Restore(kind="Savepoint", path=SAVEPOINT))
    decision = decide(ctx)
    assert action(decision) == ""
    stalled = decision.status.condition("Stalled")
    assert stalled is not None
    assert stalled.reason == "Denied"
    assert "quota" in stalled.message


EDITS: dict[str, dict[str, Any]] = {
    "image": {"image": "job:2"},
    "parallelism": {"job": {"parallelism": 3}},
    "suspended": {"job": {"state": "suspended"}},
    "redeploy": {"job": {"savepointRedeployNonce": 1, "initialSavepointPath": SAVEPOINT}},
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_new_generation_is_never_ready_before_it_is_applied(edit: dict[str, Any]) -> None:
    """This includes the pass that only stores the revision: `kubectl wait` reads the status that it writes."""
    reported: list[tuple[str, str]] = []

    async def scenario(world: World) -> None:
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        write = world.cluster.replace

        async def replace(manifest: Any, *, subresource: str = "") -> Any:
            status = manifest.get("status", {})
            if subresource == "status" and status.get("observedGeneration") == 2:
                found = {c["type"]: c["status"] for c in status["conditions"]}
                reported.append((found["Ready"], found["Reconciling"]))
            return await write(manifest, subresource=subresource)

        world.cluster.replace = replace  # type: ignore[method-assign]
        world.edit(**edit)
        await world.until(lambda: len(reported) >= 2)

    asyncio.run(scenario(World()))
    assert reported[0] == ("False", "True")
    assert reported[1][0] == "False", "a missing savepoint must be reported"


@pytest.mark.parametrize(
    ("recovery", "state", "kind"),
    [
        ({}, "RESTARTING", "Recover/Seal"),
        ({"restartFailed": False}, "RESTARTING", "Recover/Seal"),
        ({"restartFailed": False}, "FAILED", ""),
        ({"maxRestarts": 2}, "RESTARTING", "Recover/Seal"),
        ({"maxRestarts": 2}, "FAILED", ""),
        ({"maxRestarts": 3}, "FAILED", "Recover/Seal"),
    ],
)
def test_recovery_handles_failures_and_health_handles_missing_progress(
    recovery: dict[str, Any], state: str, kind: str
) -> None:
    spec = make_spec(recovery=recovery, health={"restart": True})
    running = make_running(failures=2, started_at=ago(300))
    broken = HealthStatus(job_id=running.job_id, broken="NoCheckpoint", since=ago(200), message="none for 5 minutes")
    phase = {"phase": "Failed", "phase_since": ago(290)} if state == "FAILED" else {}
    seen = up(engine=engine(state), revisions=knows(spec))
    assert step(decide(make_context(spec, seen=seen, running=running, health=broken, **phase))) == kind  # type: ignore[arg-type]
