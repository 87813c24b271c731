"""First deployments, whose masters check their own programs: reports, storage, quotas, a lost status."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.scenarios.first_scenarios import CHECKING, REFUSED, pods
from tests.unit.operator.world.scenarios.scenario import played, rejected, running, stalled


def reported(image: Image) -> tuple[str, str]:
    """Return reason and message of the condition `Stalled` of a first deployment that is refused."""
    world = World()

    async def scenario() -> None:
        world.images["job:1"] = image
        world.apply(flinkjob())
        await world.until(lambda: rejected(world) and pods(world) == [], within=900)

    asyncio.run(scenario())
    found = world.condition("Stalled")
    return found["reason"], found["message"]


@pytest.mark.parametrize(
    "behaviour",
    [{"check": REFUSED.check}, {"check_crashes": True}],
    ids=["refused", "crashes"],
)
def test_a_refusal_has_the_same_reason_and_text_as_that_of_a_separate_check(behaviour: dict[str, Any]) -> None:
    assert reported(Image(**behaviour)) == reported(Image(**behaviour, checks_itself=False))


def test_a_check_that_does_not_end_is_refused_after_its_time() -> None:
    reason, message = reported(Image(check_hangs=True))
    assert reason == "CheckTimeout"
    assert "0:10:00" in message


def test_storage_that_the_master_cannot_use_is_reported_and_checked_again() -> None:
    async def scenario(world: World) -> None:
        problem = {
            "code": "STORAGE",
            "message": "execution.checkpointing.dir = s3://bucket/checkpoints cannot be written",
        }
        world.images["job:1"] = Image(check={"ok": False, "problems": [problem]})
        world.apply(flinkjob())
        await world.until(lambda: stalled(world, "StorageUnavailable", "spec.storage.checkpoints: s3://bucket"))
        world.images["job:1"] = Image()
        await world.until(lambda: running(world), within=300)

    played(scenario)


def test_pods_that_a_quota_refuses_are_reported_and_start_later() -> None:
    async def scenario(world: World) -> None:
        world.deployments.quota = 0
        world.apply(flinkjob())
        await world.until(lambda: stalled(world, "QuotaExceeded", "Raise the quota"))
        world.deployments.quota = None
        await world.until(lambda: running(world), within=300)

    played(scenario)


def test_an_image_that_cannot_be_pulled_is_reported_during_the_check() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(pulls=False)
        world.apply(flinkjob())
        await world.until(lambda: stalled(world, "ImagePullFailed", "spec.image"))
        assert world.status()["operation"]["step"] == "Check"
        world.images["job:1"] = Image()
        await world.until(lambda: running(world), within=300)

    played(scenario)


def test_a_job_that_loses_its_status_before_its_release_is_released() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(check_hangs=True)
        world.apply(flinkjob())
        await world.until(lambda: CHECKING(world) and len(pods(world)) == 3)
        job_id = world.status()["operation"]["jobId"]
        world.cluster.edit("FlinkJob", "default", "weather", lambda m: m.pop("status"))
        world.images["job:1"] = Image()
        await world.until(lambda: running(world), within=300)
        assert world.status()["jobId"] == job_id
        assert world.storage.released == {job_id: ""}

    played(scenario)


def test_the_pods_of_a_check_that_was_given_up_are_never_adopted() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = world.images["job:2"] = Image(check_hangs=True)
        world.apply(flinkjob())
        await world.until(lambda: CHECKING(world) and len(pods(world)) == 3)
        first = world.status()["operation"]["jobId"]
        world.edit(image="job:2")
        await world.until(lambda: CHECKING(world) and world.status()["operation"]["jobId"] != first)
        world.images["job:2"] = Image()
        await world.until(lambda: running(world, image="job:2"))
        assert "Adopted" not in [reason for reason, _ in world.events()]
        assert first not in world.storage.released

    played(scenario)
