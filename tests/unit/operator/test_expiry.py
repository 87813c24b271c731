"""A FlinkJob goes by itself, if it is to, once its job has ended by itself; no other does."""

from __future__ import annotations

import pytest

from tests.unit.operator.test_recovery import deployed, play, stalled
from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.scenario import gone, running


def manifest_of(ttl: str | None) -> dict[str, object]:
    manifest = flinkjob()
    manifest["spec"]["deletion"] = {"ttlAfterFinished": ttl} if ttl else {}
    return manifest


def finished(world: World) -> bool:
    return not gone(world) and world.status().get("phase") == "Finished"


def test_a_finished_job_is_deleted_when_its_time_is_over() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(ends_at=300)
        world.apply(manifest_of("10m"))
        await world.until(lambda: finished(world))
        await world.run(540)
        assert finished(world)
        await world.until(lambda: gone(world), within=180)
        (text,) = [text for reason, text in world.events() if reason == "Expired"]
        assert "ended 10m ago" in text
        assert list(world.sink.ends.values()) == [300], "all of it was committed"

    play(scenario)


@pytest.mark.parametrize("ttl", [None, "1h"])
def test_a_finished_job_stays_until_then(ttl: str | None) -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(ends_at=300)
        world.apply(manifest_of(ttl))
        await world.until(lambda: finished(world))
        await world.run(1800)
        assert finished(world)

    play(scenario)


def test_a_job_that_has_failed_or_is_suspended_or_runs_has_not_finished() -> None:
    async def scenario(world: World) -> None:
        manifest = manifest_of("1s")
        manifest["spec"]["recovery"] = {"maxRestarts": 0}  # type: ignore[index]
        await deployed(world, manifest)
        await world.run(120)
        assert running(world)
        world.edit(job={"state": "suspended"})
        await world.until(lambda: world.status().get("phase") == "Suspended" and world.settled())
        await world.run(120)
        assert not gone(world)
        world.images["job:2"] = Image(fails_after=200)
        world.edit(job={"state": "running"}, image="job:2")
        await world.until(lambda: stalled(world, "RestartsExhausted", ""), within=600)
        await world.run(120)
        assert not gone(world)

    play(scenario)


def test_a_finished_job_that_is_edited_runs_again() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(ends_at=300)
        world.apply(manifest_of("10m"))
        await world.until(lambda: finished(world))
        world.images["job:2"] = Image()
        world.edit(image="job:2")
        await world.until(lambda: running(world))
        await world.run(900)
        assert running(world)

    play(scenario)
