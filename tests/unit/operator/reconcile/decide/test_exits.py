"""Exits of a waiting operation: an edit of the spec, or a deadline."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.scenarios.scenario import deployed, played, running, suspended
from tests.unit.operator.world.world import NAME


def drop_revision(world: World, image: str) -> None:
    for manifest in world.cluster.select("ControllerRevision", None, {}):
        if manifest["data"]["spec"]["image"] == image:
            world.cluster.drop("ControllerRevision", "default", manifest["metadata"]["name"])


@pytest.mark.parametrize("state", ["running", "suspended"])
def test_a_revision_that_is_lost_during_the_rollback_to_it_can_be_replaced(state: str) -> None:
    async def scenario(world: World) -> None:
        world.images["job:bad"] = Image(starts=False)
        await deployed(world)
        world.edit(image="job:bad")
        await world.until(lambda: world.status().get("operation", {}).get("kind") == "Rollback")
        drop_revision(world, "job:1")
        await world.until(world.stalled)
        assert world.condition("Stalled")["reason"] == "RevisionLost"
        assert "Set the spec" in world.condition("Stalled")["message"]
        await world.run(60)
        if state == "suspended":
            world.edit(image="job:2", job={"state": "suspended"})
            await world.until(lambda: suspended(world))
        world.edit(image="job:2", job={"state": "running"})
        await world.until(lambda: running(world, image="job:2"))

    played(scenario)


def test_a_lost_revision_does_not_block_the_end_of_a_rescale() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.edit(job={"parallelism": 4})
        await world.until(lambda: world.status().get("operation", {}).get("step") == "Rescale")
        drop_revision(world, "job:1")
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2", parallelism=4))

    played(scenario)


@pytest.mark.parametrize("kind", ["Rollback", "Recover"])
def test_a_job_is_suspended_during_the_trial_of_a_start_after_a_rejected_spec(kind: str) -> None:
    async def scenario(world: World) -> None:
        world.images["job:bad"] = Image(starts=False)
        await deployed(world)
        world.edit(image="job:bad")
        await world.until(lambda: world.status().get("operation", {}).get("kind") == "Rollback")
        if kind == "Recover":
            await world.until(lambda: "operation" not in world.status() and "rejected" in world.status())
            world.images["job:1"] = Image(checkpoints=False)
            job = world.leading(NAME)
            assert job is not None
            job._end("FAILED")
            await world.until(lambda: world.status().get("operation", {}).get("kind") == "Recover")
        else:
            world.images["job:1"] = Image(checkpoints=False)
        await world.until(lambda: world.status().get("operation", {}).get("step") == "Watch")
        world.edit(job={"state": "suspended"})
        await world.until(lambda: world.status()["phase"] == "Suspended", within=300)

    played(scenario)


@pytest.mark.parametrize("thing", [("Deployment", "master"), ("Deployment", "worker"), ("Secret", "secrets")])
def test_an_object_that_has_lost_its_owner_gets_it_back(thing: tuple[str, str]) -> None:
    kind, suffix = thing

    async def scenario(world: World) -> None:
        await deployed(world)
        name = f"{NAME}-{suffix}"
        world.cluster.edit(kind, "default", name, lambda m: m["metadata"].pop("ownerReferences"))
        await world.until(
            lambda: bool((world.cluster.one(kind, name) or {"metadata": {}})["metadata"].get("ownerReferences")),
            within=700,
        )
        assert world.status()["restarts"] == 0

    played(scenario)


def test_a_configuration_that_has_lost_its_owner_gets_it_back() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        [name] = [
            m["metadata"]["name"]
            for m in world.cluster.select("ConfigMap", None, {})
            if m["metadata"]["name"].startswith(f"{NAME}-config-")
        ]
        world.cluster.edit("ConfigMap", "default", name, lambda m: m["metadata"].pop("ownerReferences"))
        await world.until(
            lambda: bool((world.cluster.one("ConfigMap", name) or {})["metadata"].get("ownerReferences")), within=700
        )

    played(scenario)


def test_leftovers_of_an_earlier_flinkjob_without_an_owner_are_named_with_a_remedy() -> None:
    """They have the uid of another FlinkJob, so the operator cannot prove that it may adopt them.

    No controller removes them.
    """

    async def scenario(world: World) -> None:
        await deployed(world)
        for role in ("master", "worker"):
            world.cluster.edit(
                "Deployment", "default", f"{NAME}-{role}", lambda m: m["metadata"].pop("ownerReferences")
            )
        world.cluster.drop("FlinkJob", "default", NAME)
        world.apply(flinkjob())
        await world.until(world.stalled)
        stalled: dict[str, Any] = world.condition("Stalled")
        assert stalled["reason"] == "NameTaken"
        assert f"kubectl delete deployment -n default {NAME}-master {NAME}-worker" in stalled["message"]
        assert "NameTaken" in dict(world.events())
        for role in ("master", "worker"):
            world.cluster.remove("Deployment", "default", f"{NAME}-{role}")
        await world.until(lambda: running(world))

    played(scenario, may_repeat=True)


@pytest.mark.parametrize("wish", ["stateless", "redeploy"])
def test_a_stopped_job_whose_storage_is_lost_can_be_started_by_a_decision(wish: str) -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.edit(job={"state": "suspended"})
        await world.until(lambda: bool(world.savepoints))
        world.storage.down = "the bucket does not exist"
        world.edit(image="job:2", job={"state": "running"})
        await world.until(world.stalled, within=300)
        assert world.condition("Stalled")["reason"] == "StorageUnavailable"
        await world.run(60)
        if wish == "redeploy":
            world.storage.down = ""
            world.edit(job={"initialSavepointPath": world.savepoints[0], "savepointRedeployNonce": 1})
        else:
            world.edit(job={"upgradeMode": "stateless"})
        await world.until(lambda: running(world, image="job:2"), within=900)

    played(scenario, may_repeat=True)
