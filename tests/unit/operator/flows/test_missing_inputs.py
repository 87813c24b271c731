"""A pod whose ConfigMap or Secret is missing waits for it, as in Kubernetes, and the operator continues."""

from __future__ import annotations

import asyncio

from tests.unit.operator.world.scenarios.scenario import exactly_once, running
from tests.unit.operator.world.world import NAME, World, flinkjob


def _masters(world: World) -> list[str]:
    found = world.cluster.select("Pod", None, {"penstock.dev/role": "master"})
    return [p["status"]["containerStatuses"][0]["state"].get("waiting", {}).get("reason", "") for p in found]


def test_a_master_without_the_configmap_of_its_environment_waits_until_the_operator_has_created_it() -> None:
    async def live() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        await world.run(30)
        world.cluster.remove("ConfigMap", "default", f"{NAME}-parallelism")
        world.kill_pod("master")
        world.tick(1)
        world.tick(1)
        assert _masters(world) == ["CreateContainerConfigError"]
        await world.until(lambda: running(world))
        exactly_once(world)

    asyncio.run(live())


def test_a_pod_without_a_secret_waits_until_the_user_has_created_it() -> None:
    async def live() -> None:
        world, manifest = World(), flinkjob()
        manifest["spec"]["storage"]["secretName"] = "storage-keys"
        world.secret("storage-keys")
        world.apply(manifest)
        await world.until(lambda: running(world))
        await world.run(30)
        world.cluster.remove("Secret", "default", "storage-keys")
        world.kill_pod("master")
        world.tick(1)
        world.tick(1)
        assert _masters(world) == ["CreateContainerConfigError"]
        world.secret("storage-keys")
        await world.until(lambda: running(world))
        exactly_once(world)

    asyncio.run(live())
