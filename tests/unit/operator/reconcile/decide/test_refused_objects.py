"""Objects that the API server does not take: seen before anything is stopped, and never a dead end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.operator.world import World
from tests.unit.operator.world.scenario import edit, played, running, suspended
from tests.unit.operator.world.world import flinkjob

Refusal = Callable[[str, dict[str, Any]], str | None]
BAD = "job:bad"
WHY = 'Deployment "weather-worker" is invalid: spec.template.spec.containers[0].resources.requests[mem]: not a resource'


def worker_of(image: str, *verbs: str) -> Refusal:
    """Worker Deployments of an image are not taken."""

    def refuse(verb: str, manifest: dict[str, Any]) -> str | None:
        is_worker = manifest["kind"] == "Deployment" and manifest["metadata"]["name"].endswith("-worker")
        images = [c["image"] for c in manifest["spec"]["template"]["spec"]["containers"]] if is_worker else []
        return WHY if verb in verbs and image in images else None

    return refuse


@pytest.mark.parametrize("check", [True, False], ids=["with-check-pod", "without"])
def test_a_worker_that_is_refused_leaves_the_old_job_alone(check: bool) -> None:
    async def scenario(world: World) -> None:
        world.cluster.invalid = worker_of(BAD, "apply", "dry-run")
        manifest = flinkjob()
        manifest["spec"]["upgrade"] = {"check": check}
        world.apply(manifest)
        await world.until(lambda: running(world))
        before = world.status()["jobId"]
        world.edit(image=BAD)
        await world.until(world.stalled)
        stalled = world.condition("Stalled")
        assert stalled["reason"] == "InvalidObject"
        assert "resources.requests[mem]" in stalled["message"]
        assert "correct the field" in stalled["message"]
        await world.run(120)
        assert world.status()["jobId"] == before
        assert not world.savepoints
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))

    played(scenario)


def test_a_first_deployment_that_is_refused_takes_the_next_edit() -> None:
    async def scenario(world: World) -> None:
        world.cluster.invalid = worker_of(BAD, "apply", "dry-run")
        world.apply(flinkjob(image=BAD))
        await world.until(world.stalled)
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))

    played(scenario)


def test_a_refusal_that_nobody_foresaw_is_rolled_back() -> None:
    async def scenario(world: World) -> None:
        world.cluster.invalid = worker_of(BAD, "apply")
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        world.edit(image=BAD)
        await world.until(lambda: world.stalled() and world.status()["phase"] == "Running")
        assert world.status()["running"]["image"] == "job:1"
        assert world.status()["rejected"]["message"].count("resources.requests[mem]") == 1
        assert len(world.savepoints) == 1

    played(scenario)


@pytest.mark.parametrize("image", ["job:1", "job:2"], ids=["reverted", "another"])
def test_without_a_way_back_the_next_edit_is_taken(image: str) -> None:
    async def scenario(world: World) -> None:
        await stuck(world)
        world.edit(image=image)
        await world.until(lambda: running(world, image=image))
        assert len(world.savepoints) == 1
        assert len(world.sink.empty_starts) == 1

    played(scenario)


def test_without_a_way_back_it_can_be_suspended() -> None:
    async def scenario(world: World) -> None:
        await stuck(world)
        world.edit(job={"state": "suspended"})
        await world.until(lambda: suspended(world))
        world.edit(image="job:2", job={"state": "running"})
        await world.until(lambda: running(world, image="job:2"))
        assert len(world.savepoints) == 1
        assert len(world.sink.empty_starts) == 1

    played(scenario)


async def stuck(world: World) -> None:
    """The job is stopped, its successor cannot be made, and rollback is switched off."""
    world.cluster.invalid = worker_of(BAD, "apply")
    manifest = flinkjob()
    manifest["spec"]["rollback"] = {"enabled": False}
    world.apply(manifest)
    await world.until(lambda: running(world))
    world.edit(image=BAD)
    await world.until(world.stalled)
    assert world.condition("Stalled")["reason"] == "InvalidObject"
    await world.run(60)


def test_a_half_made_deployment_is_cleared_away_for_the_next_edit() -> None:
    """The worker Deployment was taken, the master's was not."""

    def master_of_bad(verb: str, manifest: dict[str, Any]) -> str | None:
        is_master = manifest["kind"] == "Deployment" and manifest["metadata"]["name"].endswith("-master")
        return "no" if verb == "apply" and is_master and BAD in str(manifest) else None

    async def scenario(world: World) -> None:
        world.cluster.invalid = master_of_bad
        world.apply(flinkjob(image=BAD))
        await world.until(world.stalled)
        await world.run(30)
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))

    played(scenario)


def test_a_policy_that_forbids_the_pods_is_waited_for() -> None:
    async def scenario(world: World) -> None:
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        before = world.status()["jobId"]
        world.cluster.denied["Deployment"] = "admission webhook denied the request: label team is missing"
        world.edit(image="job:2")
        await world.until(world.stalled)
        assert world.condition("Stalled")["reason"] == "Denied"
        assert world.status()["jobId"] == before
        world.cluster.denied.clear()
        await world.until(lambda: running(world, image="job:2"))

    played(scenario)


def test_an_ingress_that_is_refused_is_told_while_the_job_runs() -> None:
    def bad_host(verb: str, manifest: dict[str, Any]) -> str | None:
        is_bad = manifest["kind"] == "Ingress" and "BAD_HOST" in str(manifest)
        return "Ingress is invalid: spec.rules[0].host: Invalid value" if is_bad else None

    async def scenario(world: World) -> None:
        world.cluster.invalid = bad_host
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        before = world.status()["jobId"]
        edit(ingress={"host": "BAD_HOST"})(world)
        await world.until(world.stalled)
        for _ in range(30):
            stalled = world.condition("Stalled")
            assert (stalled["reason"], "spec.rules[0].host" in stalled["message"]) == ("InvalidObject", True)
            assert world.condition("Running")["status"] == "True"
            await world.run(5)
        told = [reason for reason, _ in world.events()]
        assert told.count("InvalidObject") == 1
        assert told.count("Repaired") <= 1
        world.edit(image="job:2")
        await world.run(60)
        assert world.status()["jobId"] == before, "an upgrade would not get an Ingress either"
        edit(ingress={"host": "good.example.org"})(world)
        await world.until(lambda: running(world, image="job:2") and not world.stalled())

    played(scenario)
