"""Prometheus metrics of flows: the duration and outcome of savepoints, rescales and downtimes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.engine.account import Progress
from penstock_operator.errors import EngineError
from penstock_operator.process.metrics import Histogram, Metrics
from tests.unit.operator.world import Image, World, flinkjob, flinksnapshot
from tests.unit.operator.world.engine import ACTION_TIME, RESCALE_TOOK, FakeEngineClient
from tests.unit.operator.world.scenarios.scenario import FOREIGN, rejected, running, suspended, with_foreign_savepoint

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def watched(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> Metrics:
    """Return the metrics of a scenario that starts with a running job."""

    async def main() -> Metrics:
        world, metrics = World(), Metrics()
        world.watch, world.watch_snapshots = metrics.note, metrics.note_snapshot
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        await world.run(25)
        await scenario(world)
        return metrics

    return asyncio.run(main())


def counts(histogram: Histogram) -> dict[tuple[str, ...], int]:
    return {labels: sum(found) for labels, found in histogram.counts.items()}


def test_the_savepoint_of_an_upgrade_is_measured_from_its_request() -> None:
    async def scenario(world: World) -> None:
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))

    metrics = watched(scenario)
    labels = ("savepoint", "upgrade", "Completed")
    assert counts(metrics.snapshots) == {labels: 1}
    assert ACTION_TIME <= metrics.snapshots.sums[labels] <= ACTION_TIME + 5


def test_the_autoscaler_has_the_parallelism_the_wanted_one_and_its_rescales() -> None:
    async def scenario(world: World) -> None:
        world.edit(autoscaling={"enabled": True, "max": 8})
        await world.until(lambda: running(world) and world.settings_sent == 1)
        world.load = 4
        await world.until(lambda: running(world, parallelism=4))
        world.load, world.limit = 6, "HOT_SUBTASK"
        await world.run(40)

    metrics, job = watched(scenario), ("default", "weather")
    found = [metric.values.get(job) for metric in (metrics.parallelism, metrics.wanted, metrics.limited)]
    assert found == [4, 6, 1]
    assert metrics.autoscaled.values == {("up",): 1}
    assert metrics.decision.values == {(*job, "HOT_SUBTASK"): 1}
    metrics.forget(*job)
    assert 'name="weather"' not in metrics.render()


def test_every_attempt_at_a_savepoint_counts_with_its_outcome() -> None:
    async def scenario(world: World) -> None:
        job = world.leading("weather")
        assert job is not None
        job.image = Image(savepoints=False)
        world.edit(job={"state": "suspended"})
        await world.until(lambda: world.status().get("operation", {}).get("retryAt") is not None)
        job.image = Image()
        await world.until(lambda: suspended(world))

    metrics = watched(scenario)
    assert counts(metrics.snapshots) == {
        ("savepoint", "suspend", "Failed"): 1,
        ("savepoint", "suspend", "Completed"): 1,
    }
    assert metrics.snapshots.sums["savepoint", "suspend", "Completed"] <= ACTION_TIME + 5, "without the pause before it"
    assert not metrics.downtime.counts, "nothing takes its place"


def test_snapshots_count_by_type_trigger_and_outcome() -> None:
    async def scenario(world: World) -> None:
        with_foreign_savepoint(world)
        world.apply(flinksnapshot("known", savepoint={"path": FOREIGN}))
        world.apply(flinksnapshot("by-hand", checkpoint={}))
        world.edit(job={"savepointTriggerNonce": 1})
        await world.run(30)
        job = world.leading("weather")
        assert job is not None
        job.image = Image(savepoints=False)
        world.apply(flinksnapshot("hopeless", backoffLimit=1))
        await world.until(lambda: world.snapshots().get("hopeless", {}).get("state") == "Failed")

    metrics = watched(scenario)
    assert counts(metrics.snapshots) == {
        ("checkpoint", "manual", "Completed"): 1,
        ("savepoint", "nonce", "Completed"): 1,
        ("savepoint", "manual", "Failed"): 2,
    }


def test_a_trigger_invented_by_a_user_creates_no_series() -> None:
    async def scenario(world: World) -> None:
        manifest = flinksnapshot("odd")
        manifest["metadata"]["labels"] = {"penstock.dev/trigger": "whatever"}
        world.apply(manifest)
        await world.until(lambda: world.snapshots().get("odd", {}).get("state") == "Completed")

    assert counts(watched(scenario).snapshots) == {("savepoint", "manual", "Completed"): 1}


async def rescaled(world: World) -> None:
    world.edit(job={"parallelism": 4})
    await world.until(lambda: running(world, parallelism=4))


def test_the_duration_of_a_rescale_is_that_of_the_engine() -> None:
    metrics = watched(rescaled)
    assert counts(metrics.rescales) == {("Completed",): 1}
    assert metrics.rescales.sums["Completed",] == RESCALE_TOOK.total_seconds()


@pytest.mark.parametrize("knows", [True, False])
def test_a_rescale_is_measured_if_the_engine_does_not_report_its_duration(
    monkeypatch: pytest.MonkeyPatch, knows: bool
) -> None:
    async def silent(client: FakeEngineClient, job_id: str) -> Progress:
        if knows:
            return Progress()
        raise EngineError("GET /jobs/…: 404", status=404)

    async def earlier(client: FakeEngineClient, job_id: str) -> None:
        return None

    monkeypatch.setattr(FakeEngineClient, "progress", silent)
    monkeypatch.setattr(FakeEngineClient, "overview", earlier)
    metrics = watched(rescaled)
    assert counts(metrics.rescales) == {("Completed",): 1}
    assert ACTION_TIME <= metrics.rescales.sums["Completed",] <= ACTION_TIME + 5


def test_a_downtime_ends_with_the_first_running_state_and_not_when_the_job_is_stable() -> None:
    async def scenario(world: World) -> None:
        seen: dict[str, Any] = {}
        note = world.watch

        def watch(transition: Any) -> None:
            note(transition)
            operation = transition.after.operation
            if operation is not None and operation.step == "Watch" and transition.seen.engine.running:
                seen.setdefault("running", transition.now)

        world.watch = watch
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))
        made = next(s for s in world.storage.found.values() if s.path == world.savepoints[0])
        expected.append((seen["running"] - made.time).total_seconds())

    expected: list[float] = []
    metrics = watched(scenario)
    assert counts(metrics.downtime) == {("Upgrade", "Succeeded"): 1}
    assert metrics.downtime.sums["Upgrade", "Succeeded"] == expected[0]
    assert metrics.steps.sums["Upgrade", "Watch"] > expected[0], "the world's first checkpoint comes later"


def test_an_upgrade_that_ran_but_failed_does_not_count_as_success() -> None:
    async def scenario(world: World) -> None:
        world.images["job:bad"] = Image(checkpoints=False)
        world.edit(image="job:bad", rollback={"after": "40s"})
        await world.until(lambda: rejected(world) and world.status()["phase"] == "Running")

    metrics = watched(scenario)
    assert counts(metrics.downtime) == {("Upgrade", "Failed"): 1, ("Rollback", "Succeeded"): 1}
    assert metrics.downtime.sums["Upgrade", "Failed"] < 40, "it was RUNNING"


def test_the_downtime_of_an_upgrade_that_never_ran_includes_the_rollback() -> None:
    async def scenario(world: World) -> None:
        world.images["job:bad"] = Image(starts=False)
        world.edit(image="job:bad")
        await world.until(lambda: rejected(world) and world.status()["phase"] == "Running")

    metrics = watched(scenario)
    assert counts(metrics.downtime) == {("Rollback", "Succeeded"): 1}
    failed = metrics.steps.sums["Upgrade", "Teardown"] + metrics.steps.sums["Upgrade", "Watch"]
    assert metrics.downtime.sums["Rollback", "Succeeded"] > failed
