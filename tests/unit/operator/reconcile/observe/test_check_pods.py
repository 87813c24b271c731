"""The pod that checks a revision: late images, evictions, lost nodes, other containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.scenarios.scenario import deployed, gone, played, running, stalled

if TYPE_CHECKING:
    pass


def test_an_image_that_arrives_later_is_checked() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(pulls=False)
        world.apply(flinkjob())
        await world.until(lambda: stalled(world, "ImagePullFailed", "spec.image"))
        world.images["job:1"] = Image()
        await world.until(lambda: running(world))

    played(scenario)


def test_an_image_that_arrives_after_the_deadline_of_its_check_pod_is_checked() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.images["job:2"] = Image(pulls=False)
        world.edit(image="job:2")
        await world.until(lambda: stalled(world, "ImagePullFailed", "job:2 cannot be pulled"))
        first = world.time
        while (world.time - first).total_seconds() < 3000:
            assert stalled(world, "ImagePullFailed", "spec.image"), world.describe()
            await world.run(5, pace=5)
        assert [reason for reason, _ in world.events()].count("ImagePullFailed") == 1
        world.images["job:2"] = Image()
        await world.until(lambda: running(world, image="job:2"))

    played(scenario)


def test_an_evicted_check_pod_gives_no_verdict_on_the_image() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.images["job:2"] = Image(check_hangs=True)
        world.edit(image="job:2")
        for turn in range(3):
            await world.until(lambda: world.cluster.select("Pod", None, {"penstock.dev/role": "check"}) != [])
            await world.run(3)
            assert bool(turn) == stalled(world, "CheckInterrupted", "(Evicted): The node was low on memory")
            world.end_pod("check", "Evicted", "The node was low on memory")
            await world.until(lambda: stalled(world, "CheckInterrupted", "Evicted"))
            await world.until(lambda: not world.cluster.select("Pod", None, {"penstock.dev/role": "check"}))
        assert [reason for reason, _ in world.events()].count("CheckInterrupted") == 1
        world.images["job:2"] = Image()
        await world.until(lambda: running(world, image="job:2"))

    played(scenario)


def lose_check(world: World) -> None:
    """Cut off the node of the check pod. Kubernetes deletes the pod, and no kubelet confirms its end."""
    (pod,) = world.cluster.select("Pod", None, {"penstock.dev/role": "check"})
    world.lose_node("check")
    world.cluster.remove("Pod", "default", pod["metadata"]["name"])


def test_a_check_pod_on_a_lost_node_is_replaced() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.images["job:2"] = Image(check_hangs=True)
        world.edit(image="job:2")
        await world.until(lambda: world.cluster.select("Pod", None, {"penstock.dev/role": "check"}) != [])
        await world.run(3)
        lose_check(world)
        world.images["job:2"] = Image()
        await world.run(50)
        assert world.status()["operation"]["step"] == "Check", "it may still go by itself"
        assert "waiting for the pod weather-check-" in world.status()["operation"]["message"]
        await world.until(lambda: running(world, image="job:2"), within=90)
        assert [reason for reason, _ in world.events()].count("CheckPodAbandoned") == 1

    played(scenario)


def test_a_check_pod_of_an_earlier_flinkjob_on_a_lost_node_is_ignored() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(check_hangs=True, checks_itself=False)
        world.apply(flinkjob())
        await world.until(lambda: world.cluster.select("Pod", None, {"penstock.dev/role": "check"}) != [])
        await world.run(3)
        lose_check(world)
        world.delete()
        await world.until(lambda: gone(world))
        world.images["job:1"] = Image()
        world.apply(flinkjob())
        await world.until(lambda: running(world), within=60)

    played(scenario)


@pytest.mark.parametrize("refused", [False, True], ids=["passes", "refused"])
def test_a_container_beside_the_check_does_not_delay_its_verdict(refused: bool) -> None:
    async def scenario(world: World) -> None:
        beside = [{"name": "logs", "image": "fluent-bit:3"}]
        await deployed(world)
        if refused:
            world.images["job:2"] = Image(check={"ok": False, "problems": [{"code": "USER_CODE", "message": "no"}]})
        start = world.time
        world.edit(image="job:2", podTemplate={"spec": {"containers": beside}})
        await world.until(lambda: stalled(world, "CheckFailed", "no;") if refused else running(world, image="job:2"))
        assert (world.time - start).total_seconds() < 120, "the deadline of the pod was not waited for"
        await world.run(5)
        assert not world.cluster.select("Pod", None, {"penstock.dev/role": "check"})

    played(scenario)


def test_insufficient_memory_is_reported_with_numbers_and_the_field() -> None:
    async def scenario(world: World) -> None:
        warning = {
            "code": "MEMORY_TIGHT",
            "message": "a worker would be killed for memory: 2 slots need 1042Mi, and taskmanager.memory.process.size is 1024Mi",
            "remedy": "raise taskmanager.memory.process.size to 1088Mi, or lower taskmanager.numberOfTaskSlots to 1",
        }
        world.images["job:1"] = Image(check={"ok": True, "problems": [], "warnings": [warning], "graph": {}})
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        (text,) = [text for reason, text in world.events() if reason == "MemoryTight"]
        assert "2 slots need 1042Mi, and spec.worker.resources.limits.memory is 1024Mi" in text
        assert "raise spec.worker.resources.limits.memory to 1088Mi, or lower spec.worker.slots to 1" in text

    played(scenario)


def test_an_event_names_the_state_that_an_upgrade_migrates_or_starts_empty() -> None:
    async def scenario(world: World) -> None:
        changes = [
            {"operator": "totals", "message": "max(amount) is new and starts empty"},
            {"operator": "", "message": "the window size changed from 1 s to 3 s"},
        ]
        report = {"ok": True, "problems": [], "state_changes": changes, "graph": {}}
        await deployed(world)
        world.images["job:2"] = Image(check=report)
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))
        (text,) = [text for reason, text in world.events() if reason == "StateChanged"]
        assert "operator totals: max(amount) is new and starts empty; the window size changed from 1 s to 3 s" in text

    played(scenario)


def test_a_check_that_does_not_end_is_abandoned_once() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.images["job:2"] = Image(check_hangs=True)
        world.edit(image="job:2")
        await world.until(lambda: stalled(world, "CheckTimeout", "did not end within"))
        assert "rejected" in world.status()

    played(scenario)
