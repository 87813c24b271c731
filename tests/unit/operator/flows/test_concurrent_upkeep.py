"""A waiting operation does not suspend the care for the running job: restarts, repairs and snapshots continue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.scenarios.scenario import deployed, played, running
from tests.unit.operator.world.world import NAME

if TYPE_CHECKING:
    from collections.abc import Callable

MISSING = "job:missing"


def waiting_upgrade(world: World) -> None:
    """Start an upgrade that waits for an image that cannot be pulled."""
    world.images[MISSING] = Image(pulls=False)
    world.edit(image=MISSING)


def waiting_rescale(world: World) -> None:
    """Start a rescale that waits for nodes."""
    world.node_capacity = 2
    world.edit(job={"parallelism": 4})


def waiting_savepoint(world: World) -> None:
    """Start an upgrade whose savepoint keeps failing."""
    job = world.leading(NAME)
    assert job is not None
    job.image = Image(savepoints=False)
    world.edit(image="job:2")


WAITS = pytest.mark.parametrize("wait", [waiting_upgrade, waiting_rescale], ids=["upgrade", "rescale"])
WAITS_ALL = pytest.mark.parametrize(
    "wait", [waiting_upgrade, waiting_rescale, waiting_savepoint], ids=["upgrade", "rescale", "savepoint"]
)


async def blocked(world: World, wait: Callable[[World], None]) -> str:
    """Start the operation, wait until it blocks, and return the id of the running job."""
    job_id = await deployed(world)
    wait(world)
    await world.until(world.stalled)
    await world.run(40)
    assert world.status()["operation"]["step"] in ("Check", "AddWorkers", "Stop"), world.describe()
    return job_id


def processes(world: World, *, but: str = "") -> bool:
    job = world.leading(NAME)
    return job is not None and job.state == "RUNNING" and job.job_id != but and job.completed > 0


def fail(world: World) -> None:
    job = world.leading(NAME)
    assert job is not None
    job.failure = "ValueError: a record makes the job fail"
    job._end("FAILED")


@WAITS
def test_a_failed_job_is_restarted(wait: Callable[[World], None]) -> None:
    async def scenario(world: World) -> None:
        former = await blocked(world, wait)
        fail(world)
        await world.until(lambda: processes(world, but=former), within=300)
        world.images[MISSING], world.node_capacity = Image(), 100
        await world.until(lambda: running(world), within=1200, pace=5)
        if wait is waiting_upgrade:
            assert world.status()["running"]["image"] == MISSING

    played(scenario)


@WAITS_ALL
@pytest.mark.parametrize("role", ["master", "worker"])
def test_a_deleted_deployment_is_created_again(wait: Callable[[World], None], role: str) -> None:
    async def scenario(world: World) -> None:
        await blocked(world, wait)
        world.cluster.remove("Deployment", "default", f"{NAME}-{role}")
        await world.until(lambda: world.cluster.one("Deployment", f"{NAME}-{role}") is not None, within=120)
        await world.until(lambda: processes(world), within=300)

    played(scenario)


@WAITS_ALL
def test_a_deleted_service_is_created_again(wait: Callable[[World], None]) -> None:
    async def scenario(world: World) -> None:
        await blocked(world, wait)
        world.cluster.remove("Service", "default", f"{NAME}-rest")
        await world.until(lambda: world.cluster.one("Service", f"{NAME}-rest") is not None, within=700)

    played(scenario)


@WAITS
def test_snapshots_are_taken(wait: Callable[[World], None]) -> None:
    async def scenario(world: World) -> None:
        await blocked(world, wait)
        world.edit(snapshots={"periodic": {"interval": "2m"}})
        await world.until(lambda: len(world.snapshots(trigger="periodic")) >= 2, within=400)
        world.edit(job={"savepointTriggerNonce": 7})
        await world.until(lambda: bool(world.snapshots(trigger="nonce")), within=60)
        assert "operation" in world.status()

    played(scenario)


def test_a_master_that_is_deleted_on_trial_is_created_again() -> None:
    """The new revision has no predecessor for a rollback, so it remains on trial until it is repaired."""

    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(checkpoints=False)
        world.apply(flinkjob())
        await world.until(world.stalled)
        assert world.status()["operation"]["step"] == "Watch"
        world.cluster.remove("Deployment", "default", f"{NAME}-master")
        await world.until(lambda: "Repaired" in dict(world.events()), within=120)
        await world.until(lambda: world.leading(NAME) is not None, within=120)
        assert world.status()["operation"]["step"] == "Watch"

    played(scenario, may_repeat=True)


def test_both_problems_are_reported() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.edit(recovery={"restartFailed": False})
        await world.run(20)
        waiting_upgrade(world)
        await world.until(world.stalled)
        fail(world)
        await world.run(60)
        stalled = world.condition("Stalled")
        assert stalled["reason"] == "ImagePullFailed"
        assert "a record makes the job fail" in stalled["message"], stalled
        assert world.condition("Running")["status"] == "False"

    played(scenario)


def test_health_is_checked_while_an_operation_waits() -> None:
    async def scenario(world: World) -> None:
        await blocked(world, waiting_upgrade)
        job = world.leading(NAME)
        assert job is not None
        job.image = Image(restarts_every=2.0)

        async def restarting() -> None:
            found = world.leading(NAME)
            if found is not None and found.state == "RESTARTING":
                found.failovers += 1
                found.state = "RUNNING"

        world.images["job:1"] = job.image
        await world.until(lambda: "RestartLoop" in dict(world.events()), within=1800, also=restarting)
        assert "restarted the job" in world.condition("Stalled")["message"]

    played(scenario)
