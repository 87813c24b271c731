"""A master that was fenced by another one. It takes the job over again without help, as soon as storage works."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.unit.operator.world import World, flinkjob
from tests.unit.operator.world.scenarios.scenario import deployed, operations, played, running, stalled
from tests.unit.operator.world.world import NAME

if TYPE_CHECKING:
    from collections.abc import Callable


def fence(world: World) -> None:
    """Let another master take the job over and disappear."""
    world.storage.leaders[world.status()["jobId"]] += 1


def lose_storage(world: World) -> None:
    world.storage.lost = "503 Service Unavailable"


def masters(world: World) -> list[str]:
    return [p["metadata"]["name"] for p in world.cluster.select("Pod", None, {"penstock.dev/role": "master"})]


def reported(world: World, reason: str) -> int:
    return [event for event, _ in world.events()].count(reason)


def test_a_fenced_master_ends_and_takes_over_again() -> None:
    async def scenario(world: World) -> None:
        job_id = await deployed(world)
        (pod,) = masters(world)
        fence(world)
        await world.until(lambda: world.condition("Running").get("reason") == "SUSPENDED", within=40)
        await world.until(lambda: "another JobManager" in dict(world.events()).get("Fenced", ""), within=10)
        assert world.condition("Ready")["status"] == "False"
        await world.until(lambda: running(world), within=120)
        assert (world.status()["jobId"], operations(world), masters(world)) == (job_id, ["Deploy"], [pod])
        assert reported(world, "Fenced") == 1
        assert reported(world, "MasterRestarted") == 0

    played(scenario)


def test_a_fenced_master_that_does_not_end_is_killed_and_the_incarnation_is_kept() -> None:
    """The incarnation's folder still decides between the master and its rival.

    A new incarnation would run beside the rival.
    """

    async def scenario(world: World) -> None:
        job_id = await deployed(world)
        before, world.masters_hang = masters(world), True
        fence(world)
        await world.until(
            lambda: stalled(world, "Fenced", "find the other JobManager") or masters(world) != before, within=200
        )
        await world.until(lambda: running(world), within=60)
        assert (world.status()["jobId"], operations(world)) == (job_id, ["Deploy"])
        assert masters(world) != before
        assert reported(world, "MasterRestarted") == 1

    played(scenario)


def test_two_masters_that_fence_each_other_cost_at_most_one_pod_in_two_minutes() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.masters_hang = True
        made: set[str] = set()

        async def the_other_one() -> None:
            leading = world.leading(NAME)
            if leading is not None and leading.state == "RUNNING" and world.time.second % 20 == 0:
                fence(world)
            made.update(masters(world))

        await world.run(1200, also=the_other_one, pace=5)
        assert 4 <= len(made) <= 11
        await world.until(lambda: running(world))

    played(scenario)


@pytest.mark.parametrize("hangs", [False, True], ids=["ends", "hangs"])
@pytest.mark.parametrize("first", [fence, lose_storage], ids=["fenced-first", "storage-first"])
def test_the_master_returns_when_storage_does(first: Callable[[World], None], hangs: bool) -> None:
    """No job can be taken over without storage.

    A started master reports FAILED and waits for storage, as the operator does.
    """

    async def scenario(world: World) -> None:
        await deployed(world)
        world.masters_hang = hangs
        first(world)
        await world.run(30)
        lose_storage(world) if first is fence else fence(world)
        await world.run(600, pace=5)
        assert world.condition("Ready")["status"] == "False"
        world.storage.lost = ""
        await world.until(lambda: running(world), within=600)

    played(scenario)


@pytest.mark.parametrize("crash", [False, True], ids=["stays", "crashes"])
def test_a_master_that_loses_storage_recovers_with_it(crash: bool) -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        lose_storage(world)
        await world.run(60)
        if crash:
            world.crash_master()
            await world.until(lambda: stalled(world, "StorageUnavailable", "503"), within=60)
        await world.run(300, pace=5)
        assert world.condition("Ready")["status"] == "False"
        world.storage.lost = ""
        await world.until(lambda: running(world), within=600)

    played(scenario)


def test_an_interrupted_rescale_is_resumed() -> None:
    async def scenario(world: World) -> None:
        job_id = await deployed(world)
        world.masters_hang, world.node_capacity = True, 2
        world.edit(job={"parallelism": 4})
        await world.until(lambda: stalled(world, "Unschedulable", "keeps parallelism 2"))
        fence(world)
        await world.run(60)
        world.node_capacity = 4
        await world.until(lambda: running(world, parallelism=4), within=600)
        assert world.status()["jobId"] == job_id

    played(scenario)


def test_an_incarnation_on_trial_is_also_repaired() -> None:
    """It has no checkpoint yet, so the same incarnation starts from scratch. No commit was made."""

    async def main() -> None:
        world = World()
        manifest = flinkjob()
        manifest["spec"]["rollback"] = {"after": "30m"}
        world.apply(manifest)
        await world.until(lambda: world.leading(NAME) is not None)
        world.masters_hang = True
        fence(world)
        await world.until(lambda: running(world), within=600)
        await world.run(60)
        assert reported(world, "MasterRestarted") == 1
        assert len(set(world.sink.empty_starts)) == 1
        assert not world.sink.lost
        assert not world.sink.repeated

    asyncio.run(main())
