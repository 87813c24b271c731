"""The operator's flows from end to end, on a world in memory."""

from __future__ import annotations

import asyncio

from tests.unit.operator.world import World, flinkjob


def test_first_deployment_ends_ready() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(world.settled)
        assert world.status()["phase"] == "Running"
        assert world.status()["running"]["restoredFrom"]["kind"] == "Fresh"

    asyncio.run(scenario())


def test_upgrade_takes_one_savepoint_and_goes_on_from_it() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(world.settled)
        world.edit(image="job:2")
        await world.until(world.settled)
        assert world.status()["running"]["image"] == "job:2"
        assert len(world.savepoints) == 1
        assert world.status()["running"]["restoredFrom"]["path"] == world.savepoints[0]
        assert not world.sink.lost
        assert not world.sink.repeated

    asyncio.run(scenario())
