"""The operator's decisions on workers for the autoscaler."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from penstock.jobmanager.autoscaling.decision import RESCALES, Reason
from penstock_operator.api.status.autoscaling import Autoscaling
from penstock_operator.engine.autoscaler import RESCALING, Autoscaler, read_autoscaler
from penstock_operator.reconcile.decide.actions import ApplyParallelism, ScaleWorkers
from penstock_operator.reconcile.decide.autoscaling import (
    LIMITS,
    SPARE_TIME,
    adjust_workers,
    configure_autoscaler,
    with_autoscaler,
)
from penstock_operator.reconcile.decide.context import Context
from penstock_operator.reconcile.observation import ActionResult, Revisions
from penstock_operator.resources.memory import with_worker_memory
from tests.unit.operator.contexts import (
    NOW,
    deployment,
    engine,
    make_context,
    make_running,
    make_spec,
    pod,
    revision,
    up,
)

SPEC = make_spec(autoscaling={"enabled": True, "max": 8})


def report(requested: int = 2, wanted: int | None = None, reason: str = "WITHIN_TARGET", **changes: Any) -> Autoscaler:
    found = Autoscaler("active", requested, requested, requested if wanted is None else wanted, reason, "a message.")
    return replace(found, **changes)


def context(
    found: Autoscaler | None,
    *,
    replicas: int = 2,
    spare: timedelta = timedelta(0),
    busy: tuple[str, ...] = ("weather-worker-1", "weather-worker-2"),
    stored: int | None = 2,
    ready: bool = True,
    **seen: Any,
) -> Context:
    state = Autoscaling(mode="active", parallelism=2, wanted=2, stored=stored, spare_since=NOW - spare)
    workers = tuple(pod("worker", name=f"weather-worker-{n + 1}", ready=ready, ip="") for n in range(replicas))
    values: dict[str, Any] = {
        "worker": deployment("worker", replicas=replicas, revision=revision(SPEC)),
        "master": deployment("master", revision=revision(SPEC)),
        "pods": (pod("master"), *workers),
        "engine": engine(autoscaler=found, busy_workers=frozenset(busy)),
        "revisions": Revisions({revision(SPEC): SPEC.to_manifest()}),
    }
    return make_context(SPEC, seen=up(**{**values, **seen}), running=make_running(SPEC), autoscaling=state)


def action(ctx: Context) -> object:
    decision = adjust_workers(with_autoscaler(ctx))
    return None if decision is None else decision.action


@pytest.mark.parametrize(
    ("found", "workers"),
    [
        (report(), None),
        (report(wanted=5, reason="WAITING_FOR_SLOTS"), 5),
        (report(wanted=5, reason="SCALE_UP"), 5),
        (report(wanted=50, reason="WAITING_FOR_SLOTS"), 8),
        (report(wanted=5, reason="BUDGET_SPENT"), None),
        (report(wanted=5, reason="LOAD_IS_CHANGING"), None),
        (report(wanted=1, reason="SCALE_DOWN"), None),
        (report(current=1, reason="FEWER_SLOTS"), None),
        (None, None),
    ],
)
def test_workers_are_added_if_the_engine_waits_for_their_slots(found: Autoscaler | None, workers: int | None) -> None:
    assert action(context(found)) == (None if workers is None else ScaleWorkers(workers))


def removed(**changes: Any) -> int | None:
    """Return the number of workers that remain of four, or None if none is removed."""
    ctx = context(changes.pop("found", report()), replicas=4, **{"spare": SPARE_TIME, **changes})
    found = action(ctx)
    return found.replicas if isinstance(found, ApplyParallelism) else None


def test_idle_workers_are_removed_after_a_while() -> None:
    assert removed() == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"spare": SPARE_TIME - timedelta(seconds=1)},
        {"busy": ()},
        {"busy": tuple(f"weather-worker-{n}" for n in (1, 2, 3, 4))},
        {"ready": False},
        {"found": report(wanted=4, reason="SCALE_UP")},
        {"found": report(wanted=3, reason="WAITING_FOR_SLOTS")},
        {"found": None},
        {"engine": engine("RESTARTING", busy_workers=frozenset({"weather-worker-1"}))},
        {"engine": engine(None)},
        {"last": ActionResult("ApplyParallelism", ok=False, code="Denied")},
    ],
    ids=[
        "not-long-enough",
        "busy-unknown",
        "all-busy",
        "busy-ones-not-ready",
        "engine-scales-up",
        "engine-waits",
        "no-report",
        "restarting",
        "silent",
        "refused",
    ],
)
def test_no_worker_is_removed(changes: dict[str, Any]) -> None:
    assert removed(**changes) is None


def test_workers_with_tasks_stay_if_the_tasks_are_spread_over_more_workers_than_necessary() -> None:
    assert removed(busy=("weather-worker-1", "weather-worker-3", "weather-worker-4")) == 3


def test_the_time_of_spare_workers_begins_again_when_they_were_needed_in_between() -> None:
    ctx = with_autoscaler(context(report(wanted=4, reason="WAITING_FOR_SLOTS"), replicas=4, spare=SPARE_TIME))
    assert ctx.status.autoscaling is not None
    assert ctx.status.autoscaling.spare_since is None


def test_the_parallelism_is_stored_for_a_master_that_restarts() -> None:
    ctx = context(report(requested=3), replicas=3)
    found = action(ctx)
    assert isinstance(found, ApplyParallelism)
    assert (found.incarnation.parallelism, found.replicas) == (3, 3)
    done = replace(ctx, seen=replace(ctx.seen, last=ActionResult("ApplyParallelism", ok=True)))
    decision = adjust_workers(with_autoscaler(done))
    assert decision is not None
    assert decision.action is None
    assert decision.status.autoscaling is not None
    assert decision.status.autoscaling.stored == 3


def test_fewer_slots_than_requested_do_not_change_the_recorded_parallelism() -> None:
    ctx = with_autoscaler(context(report(requested=2, current=1, reason="FEWER_SLOTS")))
    assert ctx.status.running is not None
    assert ctx.status.running.parallelism == 2


def test_the_reasons_are_those_of_the_engine() -> None:
    known = {reason.value for reason in Reason}
    assert LIMITS.keys() <= known
    assert {reason.value for reason in RESCALES} | {"WAITING_FOR_SLOTS"} == RESCALING


def test_a_hostile_report_is_limited() -> None:
    found = read_autoscaler(
        {
            "mode": "active" * 1000,
            "current": 2,
            "requested": 10**9,
            "wanted": 2,
            "reason": "x" * 10_000,
            "decisions": [{"timestamp": 1, "current": 1, "wanted": 1, "inputs": [{"name": "v"}] * 5000}] * 5000,
        }
    )
    assert (len(found.decisions), len(found.inputs), len(found.reason), len(found.mode)) == (10, 10, 300, 300)
    ctx = with_autoscaler(context(found))
    assert ctx.status.running is not None
    assert ctx.status.running.parallelism == SPEC.job.max_parallelism


@pytest.mark.parametrize(
    ("memory", "found"),
    [
        ({"processSize": 1 << 30, "recommendedProcessSize": 3 << 29}, ("1024Mi", "1536Mi")),
        ({"processSize": 1 << 30, "recommendedProcessSize": 10**30}, ("1024Mi", f"{2**31 - 1}Mi")),
        ({"processSize": None, "recommendedProcessSize": 1 << 30}, None),
        ({"processSize": 1 << 30, "recommendedProcessSize": -1}, None),
        ({"processSize": 1 << 30, "recommendedProcessSize": "2Gi"}, None),
        ({"processSize": True, "recommendedProcessSize": True}, None),
        ({}, None),
        ("much", None),
        (None, None),
    ],
)
def test_the_memory_in_a_response_is_a_number_of_bytes_or_ignored(memory: Any, found: tuple[str, str] | None) -> None:
    read = read_autoscaler({"mode": "active", "current": 1, "wanted": 1, "memory": memory}).memory
    assert (None if read is None else (read.limit, read.recommended)) == found


@pytest.mark.parametrize(
    ("limits", "requests", "expected"),
    [
        ({"memory": "1Gi"}, {}, {}),
        ({"memory": "1Gi"}, {"memory": "1Gi"}, {"memory": "768Mi"}),
        ({"memory": "1Gi"}, {"memory": "900Mi"}, {"memory": "768Mi"}),
        ({"memory": "1Gi", "cpu": 1}, {"memory": "256Mi"}, {"memory": "256Mi"}),
    ],
    ids=["no-request", "equal", "above-the-limit", "below"],
)
def test_the_request_does_not_exceed_the_recommended_limit(limits: Any, requests: Any, expected: Any) -> None:
    spec = make_spec(worker={"resources": {"limits": limits, "requests": requests}})
    resources = with_worker_memory(spec, "768Mi").worker.resources
    assert (resources.limits, resources.requests) == ({**limits, "memory": "768Mi"}, expected)
    assert with_worker_memory(spec, None) is spec


@pytest.mark.parametrize(("reported", "stored"), [(10**30, 2**31 - 1), (-(10**30), 0)])
def test_numbers_in_a_response_are_limited_so_that_the_status_can_be_written(reported: int, stored: int) -> None:
    decision = {"timestamp": 1000, "count": reported, "current": reported, "wanted": reported}
    body = {
        "mode": "active",
        "current": reported,
        "requested": reported,
        "wanted": reported,
        "slotsAvailable": reported,
    }
    found = read_autoscaler({**body, "decisions": [decision]})
    assert {found.current, found.requested, found.wanted, found.slots_available} == {stored}
    assert {found.decisions[0].count, found.decisions[0].current, found.decisions[0].wanted} == {stored}


def test_an_engine_of_an_earlier_version_keeps_the_settings_of_its_start() -> None:
    body = {
        "mode": "active",
        "current": 2,
        "requested": 2,
        "wanted": 2,
        "reason": "WITHIN_TARGET",
        "message": "a message.",
    }
    earlier = read_autoscaler({**body, "decisions": [], "inputs": []})
    assert earlier.configuration_id is None
    assert configure_autoscaler(context(earlier)) is None
    assert configure_autoscaler(context(report())) is not None
    edited = make_spec(autoscaling={"enabled": True, "max": 6})
    assert configure_autoscaler(replace(context(earlier), spec=edited)) is not None
