"""The deletion of a FlinkCluster with jobs ends, or says what it waits for: the operator dies, the master is lost, savepoints fail."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.reconcile.act import session
from tests.unit.operator.session.session_jobs import SECOND, in_session, is_running, played, played_with_deaths, started
from tests.unit.operator.world import World
from tests.unit.operator.world.kubernetes.kubelet import NAME
from tests.unit.operator.world.scenarios.scenario import running
from tests.unit.operator.world.session import (
    CLUSTER_NAME,
    FakeSessionClient,
    cluster_status,
    flinkcluster,
    pods_of,
    session_job,
)

if TYPE_CHECKING:
    from penstock_operator.kube.cluster import Manifest


def delete(world: World, policy: str) -> None:
    def change(manifest: Manifest) -> None:
        manifest["spec"]["deletion"] = {"jobs": policy}

    world.cluster.edit("FlinkCluster", "default", CLUSTER_NAME, change)
    if "deletionTimestamp" not in (world.cluster.one("FlinkCluster", CLUSTER_NAME) or {})["metadata"]:
        world.cluster.remove("FlinkCluster", "default", CLUSTER_NAME)


def is_gone(world: World) -> bool:
    return world.cluster.one("FlinkCluster", CLUSTER_NAME) is None


async def suspended_by_deletion(world: World, dies_at: int) -> int:
    """Delete a cluster with two jobs, and create it again. The operator dies after one call. Return the number of its calls."""
    await started(world, session_job(), session_job(SECOND))
    world.fault.calls.clear()
    world.fault.at = dies_at
    delete(world, "Suspend")
    await world.until(lambda: is_gone(world))
    calls = len(world.fault.calls)
    world.fault.is_over()
    assert not world.cluster.select("Deployment", None, {}), world.describe()
    assert len(world.savepoints) == 2, world.describe()
    await world.run(30)
    world.apply(flinkcluster())
    await world.until(lambda: is_running(world) and is_running(world, SECOND))
    await world.run(20)
    return calls


@pytest.mark.parametrize("start", range(1, 5))
def test_the_operator_may_die_while_a_deletion_suspends_jobs(start: int) -> None:
    """The deaths of the four cases are after every sixteenth call of the flow."""
    played_with_deaths(suspended_by_deletion, 4 * start, 16)


def test_a_master_that_does_not_respond_delays_the_suspension_until_force() -> None:
    async def story(world: World) -> None:
        await started(world, session_job())
        world.rest_down = True
        delete(world, "Suspend")
        await world.run(1800, pace=10)
        assert not is_gone(world)
        message = cluster_status(world)["message"]
        assert "suspended with a savepoint: default/weather" in message
        assert "set deletion.jobs to Force" in message
        delete(world, "Force")
        await world.until(lambda: is_gone(world))
        assert not world.cluster.select("Deployment", None, {})
        world.rest_down = False
        await world.run(60)
        world.apply(flinkcluster())
        await world.until(lambda: running(world))
        await world.run(20)

    played(story)


def test_the_suspension_ends_when_the_lost_master_is_back() -> None:
    async def story(world: World) -> None:
        await started(world, session_job())
        world.rest_down = True
        delete(world, "Suspend")
        await world.run(120)
        world.rest_down = False
        await world.until(lambda: is_gone(world))
        assert len(world.savepoints) == 1

    played(story)


def test_a_deleted_job_of_a_lost_master_does_not_delay_the_cluster_for_ever() -> None:
    async def story(world: World) -> None:
        await started(world, session_job(), session_job(SECOND))
        world.rest_down = True
        delete(world, "Wait")
        for name in (NAME, SECOND):
            world.delete(name)
        await world.until(lambda: is_gone(world))
        assert not world.cluster.select("FlinkJob", None, {})
        assert not world.cluster.select("Deployment", None, {})

    played(story)


@pytest.mark.parametrize("policy", ["Wait", "Suspend", "Force"])
def test_a_deletion_while_a_program_starts(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "START_PATIENCE", 0.01)

    async def story(world: World) -> None:
        answers, start = asyncio.Event(), FakeSessionClient.run

        async def slow(client: FakeSessionClient, program: str, body: dict[str, Any]) -> None:
            await answers.wait()
            await start(client, program, body)

        monkeypatch.setattr(FakeSessionClient, "run", slow)
        world.apply(flinkcluster())
        world.apply(session_job())
        await world.until(lambda: bool(world.uploads))
        await world.run(3)
        delete(world, policy)
        await world.run(30)
        answers.set()
        if policy == "Wait":
            await world.until(lambda: running(world))
            assert in_session(world) == {NAME: "RUNNING"}, "the cluster waits for the job that has started"
            world.delete()
        await world.until(lambda: is_gone(world))
        assert not pods_of(world, "shared-1", "master")
        await world.run(20)
        if policy == "Wait":
            return
        world.apply(flinkcluster())
        await world.until(lambda: is_running(world))

    world = World()
    asyncio.run(story(world))
    assert not world.sink.lost, world.describe()
    assert not world.sink.repeated, world.describe()


def test_a_deletion_ends_a_program_that_starts_for_a_long_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "START_PATIENCE", 0.01)

    async def story(world: World) -> None:
        async def endless(client: FakeSessionClient, program: str, body: dict[str, Any]) -> None:
            world.starting.add(body["jobId"])
            await asyncio.Event().wait()

        monkeypatch.setattr(FakeSessionClient, "run", endless)
        world.apply(flinkcluster())
        world.apply(session_job())
        await world.until(lambda: bool(world.starting))
        delete(world, "Suspend")
        await world.until(lambda: is_gone(world), within=120)
        assert not world.starting

    asyncio.run(story(World()))
