"""A deletion that requests a savepoint waits until one can be taken, and never deletes the only copy of the state."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.operator.flows.test_deletion_time import doomed
from tests.unit.operator.world import Image, World
from tests.unit.operator.world.scenarios.scenario import at, deployed, gone, played, suspended
from tests.unit.operator.world.world import NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.operator.world.engine import FakeJob

ALL = {"savepoint": True, "storage": "Delete"}


def leading(world: World) -> FakeJob:
    found = world.leading(NAME)
    assert found is not None
    return found


def rest_is_down(world: World) -> None:
    world.rest_down = True


def fails_over(world: World) -> None:
    """Let a worker fail and the master detect it before the operator first reads the job's state."""
    world.kill_pod("worker")
    for job in world.jobs.values():
        job.state = "RESTARTING"


def master_crashes(world: World) -> None:
    world.crash_master()


def container_is_killed(world: World) -> None:
    world.kill_container("master")


def kept(world: World) -> int:
    """Return the furthest position in the snapshots that remain in storage."""
    whole = [s.position for s in world.storage.found.values() if s.path not in world.storage.torn]
    return max(whole, default=-1)


def state_is_kept(world: World) -> None:
    assert kept(world) >= world.sink.ends.get(NAME, 0), world.describe()


@pytest.mark.parametrize("fault", [rest_is_down, fails_over, master_crashes, container_is_killed])
def test_a_job_that_is_temporarily_not_running_still_gets_its_savepoint(fault: Callable[[World], None]) -> None:
    async def story(world: World) -> None:
        await deployed(world, doomed(**ALL))
        fault(world)
        world.delete()
        await world.run(8)
        world.rest_down = False
        await world.until(lambda: gone(world))
        assert len(world.savepoints) == 1, world.describe()
        state_is_kept(world)
        assert "DeletedWithoutSavepoint" not in dict(world.events())
        left = [path for path in world.storage.found if path.startswith(world.storage.root)]
        assert not left, "the checkpoints are deleted once the savepoint is complete"

    played(story)


@pytest.mark.parametrize(
    "image",
    [Image(savepoints=False), Image(fails_after=20), Image(restarts_every=1.0)],
    ids=["savepoints-fail", "failed", "restarts-again-and-again"],
)
def test_checkpoints_are_kept_if_the_savepoint_fails(image: Image) -> None:
    async def story(world: World) -> None:
        await deployed(world, doomed(**ALL, timeout="60s"))
        world.images["job:1"] = image
        leading(world).image = image
        await world.run(5)
        world.delete()
        await world.until(lambda: gone(world))
        assert not world.savepoints
        state_is_kept(world)
        reported = dict(world.events())
        assert "DeletedWithoutSavepoint" in reported
        assert "checkpoints" in reported["StorageKept"]
        assert "deletion.savepoint" in reported["StorageKept"]

    played(story, may_repeat=True)


def test_a_savepoint_that_cannot_be_verified_deletes_no_checkpoints() -> None:
    async def story(world: World) -> None:
        await deployed(world, doomed(**ALL, timeout="60s"))
        world.delete()
        await world.until(lambda: bool(world.savepoints))
        world.storage.down = "503 SlowDown"
        await world.until(lambda: gone(world) or at("Dispose")(world))
        world.storage.down = ""
        await world.until(lambda: gone(world))
        assert [s for s in world.storage.found.values() if s.path.startswith(world.storage.root)]

    played(story)


def test_a_job_suspended_from_a_checkpoint_keeps_it_if_a_savepoint_was_requested() -> None:
    async def story(world: World) -> None:
        manifest = doomed(**ALL)
        manifest["spec"]["job"]["upgradeMode"] = "last-state"
        await deployed(world, manifest)
        world.edit(job={"state": "suspended"})
        await world.until(lambda: suspended(world))
        assert not world.savepoints
        world.delete()
        await world.until(lambda: gone(world))
        state_is_kept(world)

    played(story)


def test_a_job_suspended_with_a_savepoint_loses_its_checkpoints_and_keeps_the_savepoint() -> None:
    async def story(world: World) -> None:
        await deployed(world, doomed(**ALL))
        world.edit(job={"state": "suspended"})
        await world.until(lambda: suspended(world))
        world.delete()
        await world.until(lambda: gone(world))
        assert [s.path for s in world.storage.found.values()] == world.savepoints

    played(story)


def test_a_job_that_has_read_all_of_its_input_needs_no_savepoint() -> None:
    async def story(world: World) -> None:
        world.images["job:1"] = Image(ends_at=600)
        world.apply(doomed(**ALL))
        await world.until(lambda: world.status().get("phase") == "Finished")
        world.delete()
        await world.until(lambda: gone(world), within=60)
        assert not world.storage.found

    played(story)


@pytest.mark.parametrize("step", ["Check", "Stop", "Seal", "Teardown", "Start", "Watch"])
def test_a_deletion_during_an_upgrade_keeps_the_state(step: str) -> None:
    async def story(world: World) -> None:
        await deployed(world, doomed(**ALL))
        world.edit(image="job:2")
        await world.until(lambda: at(step)(world))
        world.delete()
        await world.until(lambda: gone(world))
        assert world.savepoints
        state_is_kept(world)

    world = played(story)
    assert len(world.savepoints) <= 2


def _random_faults(world: World, chance: random.Random) -> Callable[[], Any]:
    """Return a function that injects a failure every few seconds."""
    choices = (rest_is_down, fails_over, master_crashes, container_is_killed, _storage_down, _storage_up, _edit)

    async def also() -> None:
        if world.rest_down and chance.random() < 0.3:
            world.rest_down = False
        if world.storage.down and chance.random() < 0.2:
            world.storage.down = ""
        if chance.random() < 0.06 and world.cluster.select("Pod", None, {"penstock.dev/role": "worker"}):
            chance.choice(choices)(world)

    return also


def _storage_down(world: World) -> None:
    world.storage.down = "503 SlowDown"


def _storage_up(world: World) -> None:
    world.storage.down = ""


def _edit(world: World) -> None:
    if not gone(world):
        world.edit(image="job:2")


LOST_BY_AN_EARLIER_VERSION = 44
"""A seed with which an earlier operator deleted all state. Few seeds delete the job at such a moment."""


@pytest.mark.parametrize("seed", [*range(12), LOST_BY_AN_EARLIER_VERSION])
def test_a_deletion_at_any_moment_keeps_the_state(seed: int) -> None:
    """A snapshot with all committed records remains after any failures before and during the deletion."""

    async def story(world: World) -> None:
        chance = random.Random(seed)
        manifest = doomed(**ALL, timeout=f"{chance.choice([20, 60, 300])}s")
        manifest["spec"]["job"]["upgradeMode"] = chance.choice(["savepoint", "last-state"])
        await deployed(world, manifest)
        also = _random_faults(world, chance)
        await world.run(chance.uniform(0, 40), also=also)
        world.delete(foreground=chance.random() < 0.5)
        await world.until(lambda: gone(world), also=also)
        state_is_kept(world)

    played(story)
