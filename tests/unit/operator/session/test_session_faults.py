"""FlinkJobs in a FlinkCluster while calls of the operator fail, or the operator dies after a call."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.operator.session.session_jobs import in_session, is_running, played, played_with_deaths, started
from tests.unit.operator.world import World
from tests.unit.operator.world.kubernetes.kubelet import NAME
from tests.unit.operator.world.scenarios.scenario import running
from tests.unit.operator.world.session import CLUSTER_NAME, cluster_is_ready, cluster_status, pods_of, session_job


@pytest.mark.parametrize("mode", ["die-after", "die-before", "fail-after"])
def test_every_fault_during_an_upgrade_gives_one_job_and_exact_output(mode: Any) -> None:
    calls: list[int] = []

    async def counted(world: World) -> None:
        await started(world, session_job())
        world.fault.calls.clear()
        world.edit(job={"script": "job v2"})
        await world.until(lambda: running(world, generation=2))
        calls.append(len(world.fault.calls))

    played(counted)
    for at in range(1, calls[0] + 1):

        async def story(world: World, at: int = at) -> None:
            await started(world, session_job())
            world.fault.calls.clear()
            world.fault.at, world.fault.mode = at, mode
            world.edit(job={"script": "job v2"})
            await world.until(lambda: running(world, generation=2))
            world.fault.is_over()
            await world.run(40)
            assert running(world, generation=2), world.describe()
            assert len(world.savepoints) == 1, world.describe()
            assert in_session(world) == {NAME: "RUNNING"}

        played(story)


async def moved(world: World, dies_at: int) -> int:
    """Move a job to another image of its cluster. The operator dies after one call. Return the number of its calls."""
    await started(world, session_job())
    world.fault.calls.clear()
    world.fault.at = dies_at
    world.cluster.edit("FlinkCluster", "default", CLUSTER_NAME, lambda m: m["spec"].update(image="engine:2"))
    await world.until(lambda: cluster_is_ready(world) and cluster_status(world)["revision"] == 2)
    calls = len(world.fault.calls)
    world.fault.is_over()
    await world.run(20)
    assert is_running(world, cluster="default/shared@2"), world.describe()
    assert in_session(world, 2) == {NAME: "RUNNING"}
    assert len(world.savepoints) == 1, world.describe()
    assert not pods_of(world, "shared-1", "master")
    return calls


@pytest.mark.parametrize("start", range(1, 5))
def test_the_operator_may_die_while_a_job_moves_to_another_image(start: int) -> None:
    """The deaths of the four cases are after every eighth call of the flow."""
    played_with_deaths(moved, 2 * start, 8)
