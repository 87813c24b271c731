"""Deletion uses all of its timeout for its work, and no time beyond."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.settings import Settings
from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.scenarios.scenario import deployed, gone
from tests.unit.operator.world.world import MEANT, START

if TYPE_CHECKING:
    from penstock_operator.storage.snapshots import StoredSnapshot


def doomed(**deletion: Any) -> dict[str, Any]:
    manifest = flinkjob()
    manifest["spec"]["deletion"] = deletion
    return manifest


async def deleted(world: World, *, within: float = 900) -> float:
    """Delete the job and return the duration in seconds."""
    began = world.now()
    world.delete()
    await world.until(lambda: gone(world), within=within)
    return (world.now() - began).total_seconds()


@pytest.mark.parametrize("timeout", [45, 100])
def test_a_savepoint_that_keeps_failing_takes_at_most_the_timeout(timeout: int) -> None:
    """The pauses between attempts grow, and the last one ends with the timeout."""

    async def scenario() -> None:
        world = World()
        world.images["job:1"] = Image(savepoints=False)
        await deployed(world, doomed(savepoint=True, timeout=f"{timeout}s"))
        assert timeout <= await deleted(world) <= timeout + 10

    asyncio.run(scenario())


def test_hanging_storage_takes_at_most_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = World()
        world.images["job:1"] = Image(savepoints=False)
        await deployed(world, doomed(savepoint=True, timeout="2s"))
        requests: list[str] = []

        async def hang(directory: str) -> list[StoredSnapshot]:
            requests.append(directory)
            await asyncio.sleep(3600)
            return []

        monkeypatch.setattr(world.storage, "savepoints", hang)
        async with asyncio.timeout(30):
            assert await deleted(world) <= 10
        assert requests

    asyncio.run(scenario())


def test_deletion_of_checkpoints_is_retried_for_two_minutes() -> None:
    async def scenario() -> None:
        world = World()
        await deployed(world, doomed(storage="Delete"))
        world.storage.disposable = False
        assert 120 <= await deleted(world) <= 135
        assert "AccessDenied" in dict(world.events())["StorageKept"]

    asyncio.run(scenario())


def test_storage_that_recovers_within_two_minutes_is_emptied() -> None:
    async def scenario() -> None:
        world = World()
        await deployed(world, doomed(storage="Delete"))
        job_id, began = world.status()["jobId"], world.now()
        world.storage.down = "503 SlowDown"

        async def is_mended() -> None:
            if (world.now() - began).total_seconds() > 100:
                world.storage.down = ""

        world.delete()
        await world.until(lambda: gone(world), also=is_mended)
        assert not world.storage.of_job(job_id)
        assert "StorageKept" not in dict(world.events())
        assert world.now() > START

    asyncio.run(scenario())


def test_a_hanging_call_during_the_deletion_of_checkpoints_is_abandoned_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        world = World(settings=Settings(own_identity=MEANT, dispose_timeout=timedelta(seconds=2)))
        await deployed(world, doomed(storage="Delete"))

        async def hang(root: str, job_id: str) -> None:
            await asyncio.sleep(3600)

        monkeypatch.setattr(world.storage, "dispose_job", hang)
        async with asyncio.timeout(30):
            await deleted(world)
        assert "StorageKept" in dict(world.events())

    asyncio.run(scenario())
