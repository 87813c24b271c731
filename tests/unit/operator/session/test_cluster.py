"""A FlinkCluster in the simulated Kubernetes: its objects, its revisions, its deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import yaml

from penstock_operator.process.orphans import sweep_revisions
from penstock_operator.resources.names import CLUSTER
from tests.unit.operator.world import World
from tests.unit.operator.world.session import (
    CLUSTER_NAME,
    cluster_is_ready,
    cluster_status,
    flinkcluster,
    pods_of,
    session_job,
)


def played(story: Callable[[World], Awaitable[None]]) -> None:
    asyncio.run(story(World()))  # type: ignore[arg-type]


def change(world: World, **spec: Any) -> None:
    world.cluster.edit("FlinkCluster", "default", CLUSTER_NAME, lambda m: m["spec"].update(spec))


def names(world: World, kind: str) -> list[str]:
    return [m["metadata"]["name"] for m in world.cluster.select(kind, None, {})]


def test_a_cluster_has_a_master_and_workers_and_no_job() -> None:
    async def story(world: World) -> None:
        world.apply(flinkcluster())
        await world.until(lambda: cluster_is_ready(world))
        (master,) = pods_of(world, "shared-1", "master")
        assert master["spec"]["containers"][0]["args"] == ["session"]
        workers = pods_of(world, "shared-1", "worker")
        assert len(workers) == 2
        args = workers[0]["spec"]["containers"][0]["args"]
        assert args == ["worker", "--master", "shared-1-master-1.default.svc:7077", "--slots", "2"]
        (config,) = (m for m in world.cluster.select("ConfigMap", None, {CLUSTER: CLUSTER_NAME}))
        keys = yaml.safe_load(config["data"]["penstock.yaml"])
        uid = world.cluster.one("FlinkCluster", CLUSTER_NAME)["metadata"]["uid"]  # type: ignore[index]
        assert keys["high-availability.storageDir"] == f"s3://bucket/checkpoints/clusters/default/shared-{uid[:8]}/1"
        status = cluster_status(world)
        assert (status["workers"], status["revision"], status["replicas"]) == ("2/2", 1, 2)
        assert status["labelSelector"] == (
            "penstock.dev/cluster=shared,penstock.dev/cluster-revision=shared-1,penstock.dev/role=worker"
        )

    played(story)


def test_two_masters_elect_a_leader_and_a_disruption_keeps_one() -> None:
    async def story(world: World) -> None:
        world.apply(flinkcluster(master={"replicas": 2}))
        world.apply(session_job())
        await world.until(lambda: cluster_is_ready(world) and world.status().get("phase") == "Running")
        assert len(pods_of(world, "shared-1", "master")) == 2
        (config,) = (m for m in world.cluster.select("ConfigMap", None, {CLUSTER: CLUSTER_NAME}))
        keys = yaml.safe_load(config["data"]["penstock.yaml"])
        assert keys["high-availability.type"] == "file"
        assert "/clusters/default/shared-" in keys["high-availability.storageDir"]
        budgets = {m["metadata"]["name"] for m in world.cluster.select("PodDisruptionBudget", None, {})}
        assert budgets == {"shared-1-master", "shared-1-worker"}
        assert "high-availability.type" not in world.submitted[0]["flinkConfiguration"]
        world.cluster.drop("Pod", "default", pods_of(world, "shared-1", "master")[0]["metadata"]["name"])
        await world.until(lambda: cluster_is_ready(world) and len(pods_of(world, "shared-1", "master")) == 2)

    played(story)


def test_more_replicas_add_workers_and_restart_nothing() -> None:
    async def story(world: World) -> None:
        world.apply(flinkcluster())
        await world.until(lambda: cluster_is_ready(world))
        before = {p["metadata"]["name"] for p in world.cluster.select("Pod", None, {})}
        change(world, worker={"replicas": 3, "slots": 2})
        await world.until(lambda: cluster_status(world).get("workers") == "3/3")
        after = {p["metadata"]["name"] for p in world.cluster.select("Pod", None, {})}
        assert before < after
        assert cluster_status(world)["revision"] == 1

    played(story)


def test_another_image_starts_new_pods_first_and_then_removes_the_former_ones() -> None:
    async def story(world: World) -> None:
        world.apply(flinkcluster())
        await world.until(lambda: cluster_is_ready(world))
        together: list[int] = []
        change(world, image="engine:2")

        def replaced() -> bool:
            together.append(len(pods_of(world, "shared-1", "worker")) + len(pods_of(world, "shared-2", "worker")))
            return cluster_is_ready(world) and not pods_of(world, "shared-1", "master")

        await world.until(replaced)
        assert max(together) == 4, "the pods of both revisions ran side by side"
        assert min(together) >= 2, "workers ran at all times"
        await world.run(5)
        assert not [
            name for kind in ("Deployment", "Service", "Secret") for name in names(world, kind) if "-1-" in name
        ]
        assert cluster_status(world)["revisions"] == [
            {"number": 2, "digest": cluster_status(world)["revisions"][0]["digest"], "jobs": 0}
        ]

    played(story)


def test_a_new_revision_that_does_not_start_changes_nothing_and_says_why() -> None:
    async def story(world: World) -> None:
        world.apply(flinkcluster())
        await world.until(lambda: cluster_is_ready(world))
        world.node_capacity = 3
        change(world, image="engine:2")
        await world.until(lambda: "Insufficient cpu" in cluster_status(world).get("message", ""))
        status = cluster_status(world)
        assert (status["phase"], status["revision"]) == ("Upgrading", 1)
        assert len(pods_of(world, "shared-1", "worker")) == 2
        change(world, image="engine:1")
        await world.until(lambda: cluster_is_ready(world) and not pods_of(world, "shared-2", "master"))
        assert cluster_status(world)["revision"] == 1

    played(story)


def test_a_number_of_a_revision_is_never_used_again() -> None:
    async def story(world: World) -> None:
        world.apply(flinkcluster())
        await world.until(lambda: cluster_is_ready(world))
        for number, image in ((2, "engine:2"), (3, "engine:1")):
            change(world, image=image)
            await world.until(lambda number=number: cluster_status(world).get("revision") == number)
            await world.until(lambda: cluster_is_ready(world))

    played(story)


def test_a_deleted_deployment_is_created_again() -> None:
    async def story(world: World) -> None:
        world.apply(flinkcluster())
        await world.until(lambda: cluster_is_ready(world))
        world.cluster.remove("Deployment", "default", "shared-1-worker")
        world.cluster.remove("Service", "default", "shared-1-rest")
        await world.run(1)
        await world.until(lambda: cluster_is_ready(world) and "shared-1-rest" in names(world, "Service"))
        assert len(pods_of(world, "shared-1", "worker")) == 2

    played(story)


def environment_of(secret: str) -> dict[str, Any]:
    """Return a pod template whose pods need a Secret."""
    return {"spec": {"containers": [{"name": "penstock", "envFrom": [{"secretRef": {"name": secret}}]}]}}


def test_an_edit_corrects_a_first_revision_that_is_refused() -> None:
    async def story(world: World) -> None:
        world.apply(flinkcluster(podTemplate=environment_of("absent")))
        await world.until(lambda: "the Secret absent does not exist" in cluster_status(world).get("message", ""))
        change(world, podTemplate={})
        await world.until(lambda: cluster_is_ready(world))
        assert [r["number"] for r in cluster_status(world)["revisions"]] == [2]

    played(story)


def test_a_refused_new_revision_does_not_keep_the_current_one_from_being_repaired() -> None:
    async def story(world: World) -> None:
        world.apply(flinkcluster())
        await world.until(lambda: cluster_is_ready(world))
        change(world, podTemplate=environment_of("absent"))
        await world.until(lambda: "the Secret absent does not exist" in cluster_status(world).get("message", ""))
        world.cluster.remove("Deployment", "default", "shared-1-worker")
        await world.run(1)
        await world.until(lambda: len(pods_of(world, "shared-1", "worker")) == 2)
        assert cluster_status(world)["revision"] == 1

    played(story)


def test_a_new_cluster_of_the_same_name_does_not_use_pods_of_the_former_one() -> None:
    async def story(world: World) -> None:
        world.apply(flinkcluster())
        await world.until(lambda: cluster_is_ready(world))
        world.cluster.drop("FlinkCluster", "default", CLUSTER_NAME)
        world.apply(flinkcluster())
        await world.until(lambda: cluster_is_ready(world))
        assert cluster_status(world)["revision"] == 2
        assert await sweep_revisions(world.cluster) == ["default/shared-1"]
        await world.run(5)
        assert cluster_is_ready(world)
        assert not pods_of(world, "shared-1", "master")

    played(story)


def test_an_invalid_spec_names_the_field_and_keeps_the_pods() -> None:
    async def story(world: World) -> None:
        world.apply(flinkcluster())
        await world.until(lambda: cluster_is_ready(world))
        change(world, configuration={"high-availability.storageDir": "s3://b/x"})
        await world.until(lambda: cluster_status(world).get("phase") == "Degraded")
        assert "spec.configuration['high-availability.storageDir']" in cluster_status(world)["message"]
        assert len(pods_of(world, "shared-1", "worker")) == 2

    played(story)


def test_objects_of_another_owner_are_not_changed() -> None:
    async def story(world: World) -> None:
        meta = {"name": "shared-1-rest", "namespace": "default"}
        world.cluster.put({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"mine": True}})
        world.apply(flinkcluster())
        await world.until(lambda: "was not created for this FlinkCluster" in cluster_status(world).get("message", ""))
        assert world.cluster.one("Service", "shared-1-rest")["spec"] == {"mine": True}  # type: ignore[index]
        world.cluster.drop("Service", "default", "shared-1-rest")
        await world.until(lambda: cluster_is_ready(world))

    played(story)


def test_a_deletion_removes_all_objects_even_in_the_foreground() -> None:
    for foreground in (False, True):

        async def story(world: World, foreground: bool = foreground) -> None:
            world.apply(flinkcluster())
            await world.until(lambda: cluster_is_ready(world))
            world.cluster.remove("FlinkCluster", "default", CLUSTER_NAME, foreground=foreground)
            await world.until(lambda: world.cluster.one("FlinkCluster", CLUSTER_NAME) is None)
            await world.run(3)
            left = [key for key in world.cluster.objects if key[0] not in ("Event", "Lease")]
            assert not left

        played(story)


def test_pods_of_a_cluster_whose_finalizer_was_removed_are_deleted() -> None:
    async def story(world: World) -> None:
        world.apply(flinkcluster())
        world.apply(flinkcluster("other"))
        await world.until(lambda: cluster_is_ready(world) and cluster_is_ready(world, "other"))
        world.cluster.drop("FlinkCluster", "default", CLUSTER_NAME)
        assert await sweep_revisions(world.cluster) == ["default/shared-1"]
        await world.run(3)
        assert not pods_of(world, "shared-1", "master")
        assert pods_of(world, "other-1", "master")

    played(story)


def test_the_operator_may_die_after_any_write() -> None:
    async def count() -> int:
        world = World()
        world.apply(flinkcluster())
        await world.until(lambda: cluster_is_ready(world))
        return len(world.fault.calls)

    calls = asyncio.run(count())
    assert calls > 10
    for at in range(1, calls, 3):

        async def story(at: int = at) -> None:
            world = World()
            world.fault.at, world.fault.mode = at, "die-after"
            world.apply(flinkcluster())
            await world.until(lambda: cluster_is_ready(world))
            assert len(pods_of(world, "shared-1", "worker")) == 2
            assert len(world.cluster.select("ControllerRevision", None, {CLUSTER: CLUSTER_NAME})) == 1

        asyncio.run(story())
