"""Jobs of a simulated session cluster, and the checks that all their stories have."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.unit.operator.world import World
from tests.unit.operator.world.kubernetes.kubelet import NAME
from tests.unit.operator.world.session import CLUSTER_NAME, flinkcluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock_operator.kube.cluster import Manifest

SECOND = "other"


def played(story: Callable[[World], Awaitable[None]]) -> None:
    """Run a story, and check that no record was lost or repeated, and that each job started empty at most once."""
    world = World()

    async def main() -> None:
        await story(world)

    asyncio.run(main())
    assert not world.two_masters, f"{world.two_masters[:3]}\n{world.describe()}"
    assert not world.sink.lost, f"{world.sink.lost}\n{world.describe()}"
    assert not world.sink.repeated, f"{world.sink.repeated}\n{world.describe()}"
    assert len(world.sink.empty_starts) <= len({job.name for jobs in world.sessions.values() for job in jobs.values()})


def is_running(world: World, name: str = NAME, **expected: Any) -> bool:
    status = world.status(name)
    actual = status.get("running", {})
    return world.settled(name) and status["phase"] == "Running" and expected.items() <= actual.items()


async def started(world: World, *jobs: Manifest) -> None:
    """Run a new cluster with these jobs, which are created at the same time."""
    world.apply(flinkcluster())
    for job in jobs:
        world.apply(job)
    for job in jobs:
        await world.until(lambda job=job: is_running(world, job["metadata"]["name"]))
    await world.run(25)


def in_session(world: World, number: int = 1) -> dict[str, str]:
    """Return the states of the jobs in a revision by the name of their FlinkJob, without those that have ended."""
    jobs = world.sessions.get(f"{CLUSTER_NAME}-{number}", {}).values()
    return {job.name: job.state for job in jobs if job.state not in ("FINISHED", "CANCELED", "FAILED")}


def played_with_deaths(flow: Callable[[World, int], Awaitable[int]], first: int, step: int) -> None:
    """Play a flow without faults, and then once for each `step`-th of its calls, after which the operator dies.

    Args:
        flow: story that returns the number of calls of the operator. Its second argument is the call after which the operator dies. 0 means
            that it does not die.
        first: first call after which the operator dies.
    """
    calls: list[int] = []

    async def undisturbed(world: World) -> None:
        calls.append(await flow(world, 0))

    played(undisturbed)
    assert calls[0] > 20, "the flow has calls after which the operator can die"
    for at in range(first, calls[0] + 1, step):

        async def disturbed(world: World, at: int = at) -> None:
            await flow(world, at)

        played(disturbed)
