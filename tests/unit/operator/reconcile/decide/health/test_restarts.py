"""A permanently failed job remains Failed for any state of its master. A job without progress is a separate case."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.engine import FakeJob
from tests.unit.operator.world.scenarios.scenario import operations, played, running, stalled
from tests.unit.operator.world.world import NAME


def limited(count: int) -> dict[str, Any]:
    return recovering(maxRestarts=count)


def recovering(**recovery: Any) -> dict[str, Any]:
    manifest = flinkjob()
    manifest["spec"]["recovery"] = recovery
    return manifest


async def failed_for_good(world: World, manifest: dict[str, Any], reason: str) -> None:
    """Wait until the job, which fails whenever it runs, has been permanently failed for a while."""
    world.images["job:1"] = Image(fails_after=15)
    world.apply(manifest)
    await world.until(lambda: stalled(world, reason, ""), within=900)
    await world.run(900, pace=5)


KEPT_FAILED = pytest.mark.parametrize(
    ("recovery", "reason", "recoveries"),
    [({"maxRestarts": 2}, "RestartsExhausted", 2), ({"restartFailed": False}, "JobFailed", 0)],
    ids=["started-again-twice", "never-started-again"],
)


@KEPT_FAILED
def test_a_failed_job_whose_master_is_temporarily_silent_remains_failed(
    recovery: dict[str, Any], reason: str, recoveries: int
) -> None:
    async def scenario(world: World) -> None:
        await failed_for_good(world, recovering(**recovery), reason)
        assert operations(world).count("Recover") == recoveries
        world.rest_down = True
        await world.run(180)
        world.rest_down = False
        await world.run(300, pace=5)
        assert operations(world).count("Recover") == recoveries, world.describe()

    played(scenario)


@KEPT_FAILED
def test_a_failed_job_whose_master_moves_to_another_node_remains_failed(
    recovery: dict[str, Any], reason: str, recoveries: int
) -> None:
    async def scenario(world: World) -> None:
        await failed_for_good(world, recovering(**recovery), reason)
        world.kill_pod("master")
        await world.run(600, pace=5)
        assert operations(world).count("Recover") == recoveries, world.describe()
        assert stalled(world, reason, "a record makes the job fail"), "what the master said is kept"
        assert world.leading(NAME) is None, "nothing runs it again"
        world.images["job:1"] = Image()
        world.edit(job={"restartNonce": 1})
        await world.until(lambda: running(world))

    played(scenario)


def test_a_recreated_deployment_of_the_master_does_not_reset_the_count() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(fails_after=60)
        world.apply(limited(2))
        await world.until(lambda: running(world) and world.status()["running"]["failures"] == 1)
        job_id = world.status()["jobId"]
        world.cluster.drop("Deployment", "default", f"{NAME}-master")
        await world.until(lambda: operations(world).count("Recover") == 2 and running(world))
        assert (world.status()["jobId"], world.status()["running"]["failures"]) == (job_id, 1)
        await world.until(lambda: stalled(world, "RestartsExhausted", "restarted 2 times"), within=900)
        assert operations(world).count("Recover") == 3, "one of them for the Deployment"

    played(scenario)


def test_a_job_that_never_runs_again_does_not_reset_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine retries for eleven minutes each time before it gives up."""
    advance = FakeJob.advance

    trying: dict[str, float] = {}

    def struggling(job: FakeJob, seconds: float, workers: list[str]) -> None:
        advance(job, seconds, workers)
        tried = trying.get(job.job_id, 0.0)
        if job.state == "FAILED" and tried < 700:
            job.state, job.wanted = "RESTARTING", 10_000
        if job.state == "RESTARTING":
            trying[job.job_id] = tried + seconds
            if tried + seconds >= 700:
                job.state = "FAILED"

    monkeypatch.setattr(FakeJob, "advance", struggling)

    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(fails_after=25)
        world.apply(limited(2))
        await world.until(lambda: stalled(world, "RestartsExhausted", ""), within=3600, pace=5)
        assert operations(world).count("Recover") == 2, world.describe()

    played(scenario)


@pytest.mark.parametrize("recovery", [{"maxRestarts": 1}, {"maxRestarts": 0}, {"restartFailed": False}])
def test_restarts_for_health_are_no_failures_and_do_not_need_recovery(recovery: dict[str, Any]) -> None:
    async def scenario(world: World) -> None:
        manifest = flinkjob()
        manifest["spec"]["recovery"] = recovery
        manifest["spec"]["health"] = {"restart": True, "window": "1m", "checkpointIntervals": 3}
        world.apply(manifest)
        await world.until(lambda: running(world))
        await world.run(60)
        job = world.leading(NAME)
        assert job is not None
        job.image = Image(checkpoints=False)
        await world.until(lambda: operations(world).count("Recover") == 1, within=900)
        await world.until(lambda: running(world))
        assert "The operator restarts its pods from the newest checkpoint" in dict(world.events())["NoCheckpoint"]
        assert world.status()["running"].get("failures", 0) == 0

    played(scenario)


def test_a_permanently_failed_job_has_no_health_check() -> None:
    async def scenario(world: World) -> None:
        manifest = limited(0)
        manifest["spec"]["health"] = {"restart": True, "window": "1m", "checkpointIntervals": 3}
        await failed_for_good(world, manifest, "RestartsExhausted")
        reported = dict(world.events())
        assert "NoCheckpoint" not in reported
        assert "HealthRecovered" not in reported
        assert operations(world).count("Recover") == 0

    played(scenario)
