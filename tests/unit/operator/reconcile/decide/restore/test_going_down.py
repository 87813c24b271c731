"""Jobs that fail or finish during a change, and jobs that hang before they reach a terminal state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.scenarios.scenario import deployed, operations, played, running, stalled
from tests.unit.operator.world.world import NAME

if TYPE_CHECKING:
    from collections.abc import Callable


def lose_master(world: World) -> None:
    world.cluster.remove("Deployment", "default", f"{NAME}-master")


@pytest.mark.parametrize("rest", [True, False], ids=["answers", "silent"])
@pytest.mark.parametrize(
    "happens",
    [lambda world: hang(world, "FAILED"), lambda world: hang(world, "FAILING"), lose_master],
    ids=["fails", "does-not-end", "loses-its-master"],
)
def test_a_job_that_fails_during_a_rescale_is_recovered(happens: Callable[[World], None], rest: bool) -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.node_capacity = 2
        world.edit(job={"parallelism": 4})
        await world.until(lambda: stalled(world, "Unschedulable", "keeps parallelism 2"))
        world.rest_down = not rest
        happens(world)
        await world.run(30)
        world.rest_down, world.node_capacity = False, 4
        await world.until(lambda: running(world, parallelism=4))
        assert operations(world) == ["Rescale", "Recover", "Rescale", "Deploy"]
        assert [reason for reason, _ in world.events()].count("Abandoned") == 1

    played(scenario)


def test_a_job_that_finishes_during_a_rescale_has_finished() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(ends_at=900)
        await deployed(world)
        world.node_capacity = 2
        world.edit(job={"parallelism": 4})
        await world.until(lambda: world.settled() and world.status()["phase"] == "Finished")

    played(scenario)


def hang(world: World, state: str) -> None:
    """Let the master hang, so that the job never reaches a terminal state."""
    job = world.leading(NAME)
    assert job is not None
    job.state = state


@pytest.mark.parametrize("state", ["CANCELLING", "FAILING"])
def test_a_job_that_hangs_at_its_end_is_stopped_for_an_upgrade(state: str) -> None:
    async def scenario(world: World) -> None:
        job_id = await deployed(world)
        hang(world, state)
        world.edit(image="job:2")
        await world.until(lambda: state in world.status().get("operation", {}).get("message", ""))
        assert f"the job is {state}; unless it has ended by" in world.condition("Progressing")["message"]
        await world.run(120)
        assert world.status()["operation"]["step"] == "Stop"
        await world.until(lambda: running(world, image="job:2"))
        assert f"{job_id}/chk-" in world.status()["running"]["restoredFrom"]["path"]
        assert f"has been {state} for 0:03:00 and does not end" in dict(world.events())["EndTimeout"]
        assert not world.savepoints

    played(scenario)


def test_a_job_that_ends_in_time_is_not_stopped() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        hang(world, "FAILING")
        await world.run(170)
        hang(world, "RESTARTING")
        await world.run(30)
        assert operations(world) == ["Deploy"]
        assert running(world)

    played(scenario)


@pytest.mark.parametrize("state", ["CANCELLING", "FAILING"])
@pytest.mark.parametrize("restart", [True, False])
def test_a_job_that_hangs_at_its_end_is_recovered(state: str, restart: bool) -> None:
    async def scenario(world: World) -> None:
        manifest = flinkjob()
        manifest["spec"]["recovery"] = {"restartFailed": restart}
        await deployed(world, manifest)
        hang(world, state)
        await world.run(170)
        assert operations(world) == ["Deploy"]
        if not restart:
            await world.until(lambda: stalled(world, "EndTimeout", "job.restartNonce"), within=60)
            await world.run(60)
            world.edit(job={"restartNonce": 1})
        await world.until(lambda: len(world.sink.restores) == 1 and running(world))
        assert operations(world)[0] == ("Recover" if restart else "Upgrade")

    played(scenario)
