"""The status is lost, completely or in part. The running job continues, and does not count as a first start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.operator.flows.test_concurrent_changes import by_name
from tests.unit.operator.world import World, flinkjob, flinksnapshot
from tests.unit.operator.world.scenarios.branches import at_calls, some
from tests.unit.operator.world.scenarios.scenario import at, begin, exactly_once, gone, running
from tests.unit.operator.world.world import NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock_operator.kube.cluster import Manifest


def wipe(world: World) -> None:
    """Remove the status, as a restore from a backup without the status subresource does."""
    if world.cluster.one("FlinkJob", NAME) is not None:
        world.cluster.edit("FlinkJob", "default", NAME, lambda m: m.pop("status", None))


def change_status(world: World, change: Callable[[dict[str, Any]], Any]) -> None:
    def edit(manifest: Manifest) -> None:
        change(manifest["status"])

    world.cluster.edit("FlinkJob", "default", NAME, edit)


def lost(world: World) -> bool:
    return world.condition("Stalled").get("reason") == "StatusLost"


def masters(world: World) -> list[str]:
    return [p["metadata"]["name"] for p in world.cluster.select("Pod", None, {"penstock.dev/role": "master"})]


@pytest.mark.parametrize("nonce", [None, 3])
def test_a_running_job_without_a_status_is_adopted_unchanged(nonce: int | None) -> None:
    async def scenario() -> None:
        world = World()
        path = (
            {"initialSavepointPath": "s3://bucket/savepoints/of-long-ago", "savepointTriggerNonce": 4} if nonce else {}
        )
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        world.edit(job={**path, "savepointRedeployNonce": nonce} if nonce else {})
        change_status(
            world, lambda s: s["nonces"].update(savepointRedeploy=nonce, savepointTrigger=4) if nonce else None
        )
        await world.run(60)
        job_id, pods = world.status()["jobId"], masters(world)
        wipe(world)
        await world.until(lambda: running(world))
        await world.run(60)
        assert (world.status()["jobId"], masters(world)) == (job_id, pods)
        assert "Adopted" in [reason for reason, _ in world.events()]
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))
        exactly_once(world)

    asyncio.run(scenario())


def test_a_job_whose_status_has_lost_only_the_running_incarnation_keeps_running() -> None:
    """It does not count as suspended. A suspended job would restart from an older checkpoint."""

    async def scenario() -> None:
        world = World()
        world.apply(flinkjob(savepointTriggerNonce=1))
        await world.until(lambda: running(world))
        await world.run(60)
        job_id, pods = world.status()["jobId"], masters(world)
        change_status(world, lambda s: s.pop("running"))
        await world.until(lambda: "Adopted" in [reason for reason, _ in world.events()])
        await world.run(60)
        assert running(world)
        assert (world.status()["jobId"], masters(world)) == (job_id, pods)
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))
        exactly_once(world)

    asyncio.run(scenario())


@pytest.mark.parametrize("role", ["master", "worker"])
@pytest.mark.parametrize("left", ["nothing", "all but what runs"])
def test_a_job_that_loses_a_deployment_together_with_the_status_continues(left: str, role: str) -> None:
    """It does not restart from the last checkpoint in the status."""

    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        await world.run(55)
        job_id = world.status()["jobId"]
        world.cluster.drop("Deployment", "default", f"{NAME}-{role}")
        if left == "nothing":
            wipe(world)
        else:
            change_status(world, lambda s: s.pop("running"))
        await world.until(lambda: "Adopted" in [reason for reason, _ in world.events()])
        await world.until(lambda: running(world))
        await world.run(60)
        assert running(world)
        assert world.status()["jobId"] == job_id
        exactly_once(world)

    asyncio.run(scenario())


@pytest.mark.parametrize("flow", ["upgrade", "rescale-up", "suspend-and-resume", "redeploy"])
@pytest.mark.parametrize(
    "step", ["Check", "Prepare", "Stop", "AddWorkers", "Rescale", "RemoveWorkers", "Watch", "Verify"]
)
def test_the_running_incarnation_may_be_lost_during_an_operation(flow: str, step: str) -> None:
    async def scenario() -> None:
        story, world = by_name(flow), World()
        await begin(story, world)
        story.act(world)
        forgotten: list[str] = []

        async def forget() -> None:
            status = world.status()
            if not forgotten and "running" in status and (status.get("operation") or {}).get("step") == step:
                forgotten.append(step)
                change_status(world, lambda s: s.pop("running"))

        for when, act in story.then:
            await world.until(lambda when=when: when(world), also=forget)
            act(world)
        await world.until(lambda: story.ended(world), also=forget)
        if story.exact:
            exactly_once(world)
        assert not world.two_masters

    asyncio.run(scenario())


@pytest.mark.parametrize("foreground", [False, True])
@pytest.mark.parametrize("left", ["nothing", "all but what runs", "what runs cannot be read"])
def test_a_deletion_without_a_status_takes_the_requested_savepoint(left: str, foreground: bool) -> None:
    async def scenario() -> None:
        world = World()
        manifest = flinkjob()
        manifest["spec"]["deletion"] = {"savepoint": True, "storage": "Delete"}
        world.apply(manifest)
        await world.until(lambda: running(world))
        await world.run(30)
        if left == "nothing":
            wipe(world)
        elif left == "all but what runs":
            change_status(world, lambda s: s.pop("running"))
        else:
            change_status(world, lambda s: s.update(running="?"))
        world.delete(foreground=foreground)
        await world.until(lambda: gone(world))
        assert len(world.savepoints) == 1
        assert world.storage.found[world.savepoints[0]].position >= world.sink.ends[NAME]

    asyncio.run(scenario())


def test_an_adopted_job_with_standby_pods_keeps_its_service() -> None:
    async def scenario() -> None:
        world = World()
        manifest = flinkjob()
        manifest["spec"]["upgrade"] = {"warmStart": True}
        world.apply(manifest)
        await world.until(lambda: running(world))
        await world.run(25)
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2", warm=True, serviceSuffix="-2"))
        wipe(world)
        await world.until(lambda: running(world, image="job:2"))
        assert (world.status()["running"]["warm"], world.status()["running"]["serviceSuffix"]) == (True, "-2")
        await world.run(25)
        world.cluster.remove("Service", "default", f"{NAME}-master-2")
        await world.until(lambda: world.cluster.one("Service", f"{NAME}-master-2") is not None)
        world.edit(image="job:3")
        await world.until(lambda: running(world, image="job:3", warm=True, serviceSuffix="-1"))
        exactly_once(world)

    asyncio.run(scenario())


def test_an_adopted_job_gets_the_same_care_as_others() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        world.edit(job={"parallelism": 4})
        await world.until(lambda: running(world, parallelism=4))
        wipe(world)
        await world.until(lambda: running(world, parallelism=4))
        world.cluster.drop("Deployment", "default", "weather-master")
        await world.run(90)
        await world.until(lambda: running(world, parallelism=4))
        exactly_once(world)

    asyncio.run(scenario())


def test_an_adopted_job_without_its_checkpoints_is_not_started_empty() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        wipe(world)
        await world.until(lambda: running(world))
        world.cluster.drop("Deployment", "default", "weather-master")
        world.storage.found.clear()
        await world.run(120)
        assert world.condition("Stalled")["reason"] == "StateLost"
        assert len(world.sink.empty_starts) == 1

    asyncio.run(scenario())


def test_a_stopped_job_without_a_status_waits_for_a_person() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob(savepointRedeployNonce=1, initialSavepointPath="s3://bucket/savepoints/of-long-ago"))
        world.storage.put(world_savepoint(world, "s3://bucket/savepoints/of-long-ago"))
        await world.until(lambda: running(world))
        await world.run(30)
        world.edit(job={"state": "suspended"})
        await world.until(lambda: world.status().get("phase") == "Suspended")
        savepoint = world.status()["nextRestore"]["path"]
        wipe(world)
        world.edit(job={"state": "running"})
        await world.until(lambda: lost(world))
        await world.run(200)
        assert lost(world)
        assert not masters(world)
        message = world.condition("Stalled")["message"]
        assert "incarnation" in message
        assert "job.savepointRedeployNonce" in message
        world.edit(job={"initialSavepointPath": savepoint, "savepointRedeployNonce": 2})
        await world.until(lambda: running(world))
        assert not world.sink.lost
        assert not world.sink.repeated
        assert not world.sink.empty_starts

    asyncio.run(scenario())


def world_savepoint(world: World, path: str) -> Any:
    from tests.unit.operator.world.storage import Stored

    return Stored(path, 1, "f" * 32, 0, world.now())


def test_an_operation_of_a_later_version_is_not_changed() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        world.edit(image="job:2")
        await world.until(lambda: at("Watch")(world))
        operation = dict(world.status()["operation"])
        change_status(world, lambda s: s["operation"].update(kind="BlueGreen", step="Mirror"))
        await world.run(120)
        assert lost(world)
        assert "BlueGreen" in world.condition("Stalled")["message"]
        assert world.status()["operation"]["kind"] == "BlueGreen"
        change_status(world, lambda s: s["operation"].update(kind=operation["kind"], step=operation["step"]))
        await world.until(lambda: running(world, image="job:2"))
        exactly_once(world)

    asyncio.run(scenario())


@pytest.mark.parametrize("field", ["running", "operation", "nextRestore", "nonces"])
def test_an_unreadable_status_is_kept(field: str) -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob(savepointTriggerNonce=1))
        await world.until(lambda: running(world))
        pods = masters(world)
        before = world.status().get(field)
        change_status(world, lambda s: s.update({field: {"of": ["a", "later", "version"], "savepointTrigger": "x"}}))
        world.edit(image="job:2")
        await world.run(120)
        assert lost(world), world.describe()
        assert f"status.{field}" in world.condition("Stalled")["message"]
        assert world.status()[field] == {"of": ["a", "later", "version"], "savepointTrigger": "x"}
        assert masters(world) == pods
        assert [reason for reason, _ in world.events()].count("StatusLost") == 1
        change_status(world, lambda s: s.update({field: before}) if before else s.pop(field))
        await world.until(lambda: running(world, image="job:2"))
        exactly_once(world)

    asyncio.run(scenario())


@pytest.mark.parametrize("field", ["running", "operation", "nonces"])
def test_a_job_with_an_unreadable_status_can_be_deleted(field: str) -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        change_status(world, lambda s: s.update({field: "?"}))
        await world.run(30)
        world.delete()
        await world.until(lambda: gone(world))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "flow", ["deploy", "upgrade", "rescale-up", "suspend-and-resume", "rollback-of-a-crashing-image"]
)
def test_the_status_may_be_lost_at_any_call_of_any_flow(flow: str) -> None:
    """The flow ends with a running job or with a report to a person, never with a job that started from scratch."""
    scenario = by_name(flow)
    world = World()
    asyncio.run(begin(scenario, world))

    world.fault.mode, world.fault.change = "change-after", lambda: wipe(world)

    async def go_on() -> None:
        scenario.act(world)
        for when, act in scenario.then:
            await world.until(lambda when=when: when(world) or lost(world))
            act(world)
        await world.run(400, pace=5)
        world.fault.is_over()
        await world.until(lambda: world.settled() or world.stalled())  # the fault may be at the last call
        story = f"{world.fault.struck}\n{world.describe()}"
        assert not world.sink.repeated, story
        assert not world.sink.lost, story
        assert not world.two_masters, story
        assert len(world.sink.empty_starts) <= 1, story
        assert world.settled() or world.stalled(), story

    at_calls(some(), world.fault, go_on)


def test_a_snapshot_in_a_state_of_a_later_version_is_not_changed() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        world.apply(flinksnapshot("mine"))
        await world.until(lambda: world.snapshots()["mine"].get("state") == "Completed")
        world.cluster.edit("FlinkSnapshot", "default", "mine", lambda m: m["status"].update(state="Archived"))
        await world.run(120)
        assert len(world.savepoints) == 1
        assert world.snapshots()["mine"]["state"] == "Archived"
        assert "another version" in world.snapshots()["mine"]["message"]

    asyncio.run(scenario())
