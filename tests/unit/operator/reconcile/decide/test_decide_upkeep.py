"""The decision table: repairs, removals and records of a job without an operation."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from penstock_operator.api.status.operation import Nonces
from penstock_operator.api.status.snapshots import Restore, Superseded
from penstock_operator.reconcile.core import decide
from penstock_operator.reconcile.decide import actions
from penstock_operator.reconcile.observation import (
    ActionResult,
    CheckPod,
    Engine,
    Observation,
    Revisions,
    SnapshotObject,
)
from tests.unit.operator.contexts import (
    NOW,
    ago,
    chk,
    deployment,
    engine,
    make_context,
    make_running,
    make_spec,
    revision,
    stored,
    up,
)
from tests.unit.operator.decisions import action, knows, reasons


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (up(missing=("Service weather-rest",)), "ApplyChildren"),
        (up(worker=None), "ApplyPods"),
        (up(worker=deployment("worker", drift="spec.template")), "ApplyPods"),
        (up(master=deployment(drift="spec.template")), "ApplyPods"),
        (up(check=CheckPod("stray", "old", "Passed")), "DeleteCheck"),
    ],
)
def test_missing_and_changed_objects_are_repaired(seen: Observation, expected: str) -> None:
    assert action(decide(make_context(seen=seen))) == expected


def test_the_pods_of_a_finished_job_are_removed() -> None:
    decision = decide(make_context(running=make_running(finished_at=ago(5)), seen=up(engine=engine("FINISHED"))))
    assert action(decision) == "ScaleDown"


def test_a_finished_job_remains_finished_without_its_pods() -> None:
    seen = up(engine=Engine(error="the job has no master", absent=True), pods=())
    status = {"job_state": "FINISHED", "job_state_since": ago(9)}
    reported = decide(make_context(running=make_running(finished_at=ago(5)), seen=seen, **status)).status  # type: ignore[arg-type]
    assert (reported.phase, reported.job_state, reported.job_state_since) == ("Finished", "FINISHED", ago(9))


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
def test_checkpoints_of_former_incarnations_are_removed_when_they_are_not_needed(
    status: dict[str, Any], expected: str
) -> None:
    seen = up(engine=replace(engine(), checkpoints=replace(engine().checkpoints, completed=0)))
    assert action(decide(make_context(seen=seen, **superseded("b" * 32), **status))) == expected


def test_a_failed_removal_is_retried_soon_then_rarely_and_then_reported() -> None:
    failed = ActionResult("DisposeJobStorage", ok=False, code="StorageUnavailable", message="AccessDenied")
    again = decide(make_context(seen=up(last=failed), **superseded("b" * 32)))
    assert again.status.superseded[0].retry_at == NOW + timedelta(seconds=10)
    assert action(decide(make_context(superseded=again.status.superseded))) == ""
    more = decide(make_context(seen=up(last=failed), superseded=again.status.superseded))
    assert more.status.superseded[0].retry_at == NOW + timedelta(minutes=20)
    tired = (Superseded(job_id="b" * 32, failures=4),)
    last = decide(make_context(seen=up(last=failed), superseded=tired))
    assert last.status.superseded == ()
    assert "CheckpointsKept" in reasons(last)


@pytest.mark.parametrize("periodic", [{"interval": "60s"}, {"cron": "* * * * *"}])
def test_a_due_schedule_becomes_one_snapshot(periodic: dict[str, Any]) -> None:
    spec, before = make_spec(snapshots={"periodic": periodic}), {"last_periodic_at": ago(60)}
    decision = decide(make_context(spec, **before))  # type: ignore[arg-type]
    assert isinstance(decision.action, actions.CreateSnapshot)
    assert decision.action.name == "weather-periodic-20260101120000"
    there = SnapshotObject(decision.action.name, "periodic", "savepoint", "Pending")
    done = decide(make_context(spec, seen=up(snapshots=(there,)), **before))  # type: ignore[arg-type]
    assert (action(done), done.status.last_periodic_at) == ("", NOW)


def test_a_nonce_becomes_one_snapshot() -> None:
    spec = make_spec(job={"savepointTriggerNonce": 4})
    decision = decide(make_context(spec))
    assert isinstance(decision.action, actions.CreateSnapshot)
    there = SnapshotObject(decision.action.name, "nonce", "savepoint", "Pending")
    done = decide(make_context(spec, seen=up(snapshots=(there,))))
    assert done.status.nonces.savepoint_trigger == 4
    assert action(decide(make_context(spec, seen=up(snapshots=(there,)), nonces=Nonces(savepoint_trigger=4)))) == ""


@pytest.mark.parametrize(
    ("periodic", "since", "pause"),
    [
        ({"interval": "60s"}, 55, 5),
        ({"interval": "60s"}, 0, 15),
        ({"cron": "* * * * *"}, 53, 7),
        ({"cron": "* * * * *"}, 0, 15),
        ({"cron": "0 12 * * *"}, 53, 15),
    ],
)
def test_the_next_pass_is_when_the_schedule_is_due(periodic: dict[str, Any], since: int, pause: int) -> None:
    ctx = make_context(make_spec(snapshots={"periodic": periodic}), last_periodic_at=NOW)
    decision = decide(replace(ctx, now=NOW + timedelta(seconds=since)))
    assert (action(decision), decision.requeue) == ("", timedelta(seconds=pause))


def test_a_checkpoint_seen_in_storage_is_recorded() -> None:
    """Otherwise the job could start empty if its checkpoints are lost later."""
    running = make_running(had_checkpoint=False)
    decision = decide(make_context(running=running, seen=up(engine=engine(None), storage=stored(chk()))))
    assert decision.status.running is not None
    assert decision.status.running.had_checkpoint


def test_old_revisions_are_pruned_but_never_those_in_use() -> None:
    many = {f"weather-{i:010d}": make_spec().to_manifest() for i in range(14)}
    decision = decide(make_context(seen=up(revisions=Revisions({**many, **knows()}))))
    assert isinstance(decision.action, actions.PruneRevisions)
    assert len(decision.action.names) == 5
    assert revision() not in decision.action.names
