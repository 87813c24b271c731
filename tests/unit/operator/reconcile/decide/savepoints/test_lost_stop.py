"""The status is lost while the job is being stopped. The job is adopted, and ends as the spec requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.operator.reconcile.decide.test_lost_status import masters, wipe
from tests.unit.operator.world import Image, World, engine, flinkjob
from tests.unit.operator.world.scenarios.scenario import at, played, running, suspended
from tests.unit.operator.world.world import NAME

if TYPE_CHECKING:
    pass

SUSPEND: dict[str, Any] = {"job": {"state": "suspended"}}
UPGRADE: dict[str, Any] = {"image": "job:2"}
TAKEN_BACK: dict[str, Any] = {"image": "job:1", "job": {"state": "running"}}


def reported(world: World) -> list[str]:
    return [reason for reason, _ in world.events()]


async def lost_in_a_stop(world: World, edit: dict[str, Any], **manifest: Any) -> str:
    """Lose the status after the request to the engine to stop, and return the job's id."""
    world.apply(flinkjob(**manifest))
    await world.until(lambda: running(world))
    await world.run(25)
    world.edit(**edit)
    await world.until(lambda: at("Stop", triggerId=True)(world) and bool(pending(world)))
    job_id = str(world.status()["running"]["jobId"])
    wipe(world)
    return job_id


def pending(world: World) -> dict[str, Any]:
    job = world.leading(NAME)
    return job.pending if job is not None else {}


def has_ended(world: World) -> bool:
    return bool(world.storage.ended)


@pytest.mark.parametrize("edit", [SUSPEND, UPGRADE], ids=["suspend", "upgrade"])
@pytest.mark.parametrize("ended_before", [True, False], ids=["ended-before-it-is-adopted", "ends-afterwards"])
def test_a_stop_that_the_spec_no_longer_requests_is_reverted(
    monkeypatch: pytest.MonkeyPatch, edit: dict[str, Any], ended_before: bool
) -> None:
    monkeypatch.setattr(engine, "ACTION_TIME", 6.0)

    async def scenario(world: World) -> None:
        job_id = await lost_in_a_stop(world, edit)
        world.edit(**TAKEN_BACK)
        while ended_before and not has_ended(world):
            world.tick(1)
        await world.until(lambda: "Adopted" in reported(world))
        await world.until(lambda: has_ended(world) and running(world))
        await world.run(60)
        assert running(world, image="job:1")
        assert world.status()["jobId"] != job_id
        assert "Finished" not in reported(world)
        assert "lost with the status" in dict(world.events())["RecoverStarted"]

    played(scenario)


def test_a_suspension_continues_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ACTION_TIME", 6.0)

    async def scenario(world: World) -> None:
        await lost_in_a_stop(world, SUSPEND)
        await world.until(lambda: suspended(world))
        assert not masters(world)
        assert world.storage.found[world.status()["nextRestore"]["path"]].position == world.sink.ends[NAME]
        world.edit(job={"state": "running"})
        await world.until(lambda: running(world))

    played(scenario)


def test_an_upgrade_continues_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ACTION_TIME", 6.0)

    async def scenario(world: World) -> None:
        await lost_in_a_stop(world, UPGRADE)
        await world.until(lambda: running(world, image="job:2"))
        assert "Finished" not in reported(world)

    played(scenario)


def test_a_person_is_informed_if_no_checkpoint_is_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ACTION_TIME", 6.0)

    async def scenario(world: World) -> None:
        await lost_in_a_stop(world, SUSPEND)
        world.edit(**TAKEN_BACK)
        await world.until(lambda: has_ended(world))
        lost = world.storage.of_job(world.status()["running"]["jobId"])
        for snapshot in lost:
            del world.storage.found[snapshot.path]
        await world.until(lambda: world.condition("Stalled").get("reason") == "StateLost", within=60)
        await world.run(60)
        assert world.condition("Ready")["status"] == "False"
        for snapshot in lost:
            world.storage.put(snapshot)
        await world.until(lambda: running(world))

    played(scenario)


def test_the_stop_continues_if_its_master_is_already_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replacement of the master reports the end of its predecessor."""
    monkeypatch.setattr(engine, "ACTION_TIME", 6.0)

    async def scenario(world: World) -> None:
        await lost_in_a_stop(world, SUSPEND)
        world.edit(**TAKEN_BACK)
        await world.until(lambda: "Adopted" in reported(world))
        while not has_ended(world):
            world.tick(1)
        world.cluster.drop("Deployment", "default", f"{NAME}-master")
        await world.until(lambda: reported(world).count("RecoverSucceeded") == 1)
        assert running(world)
        assert "Finished" not in reported(world)

    played(scenario)


def test_the_end_of_the_input_ends_an_adopted_job() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(ends_at=600)
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        wipe(world)
        await world.until(lambda: world.status().get("phase") == "Finished")
        assert world.status()["running"]["endOfInput"] is True
        await world.run(60)
        assert "RecoverStarted" not in reported(world)

    played(scenario)


def test_a_later_stop_of_an_adopted_job_counts_as_a_stop() -> None:
    async def scenario(world: World) -> None:
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        wipe(world)
        await world.until(lambda: running(world))
        await world.run(3700, pace=5)
        job = world.leading(NAME)
        assert job is not None
        job.ask("stop", "by-hand", "s3://bucket/savepoints/by-hand")
        await world.until(lambda: world.status().get("phase") == "Finished")
        await world.run(60)
        assert "RecoverStarted" not in reported(world)

    played(scenario)
