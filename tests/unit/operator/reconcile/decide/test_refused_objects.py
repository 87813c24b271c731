"""Objects that the API server refuses: detected before the job is stopped, and always with an exit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.operator.world import World
from tests.unit.operator.world.scenarios.scenario import deployed, edit, played, running, suspended
from tests.unit.operator.world.world import flinkjob

Refusal = Callable[[str, dict[str, Any]], str | None]
BAD = "job:bad"
WHY = 'Deployment "weather-worker" is invalid: spec.template.spec.containers[0].resources.requests[mem]: not a resource'


def worker_of(image: str, *verbs: str) -> Refusal:
    """Refuse worker Deployments of an image."""

    def refuse(verb: str, manifest: dict[str, Any]) -> str | None:
        is_worker = manifest["kind"] == "Deployment" and manifest["metadata"]["name"].endswith("-worker")
        images = [c["image"] for c in manifest["spec"]["template"]["spec"]["containers"]] if is_worker else []
        return WHY if verb in verbs and image in images else None

    return refuse


@pytest.mark.parametrize("check", [True, False], ids=["with-check-pod", "without"])
def test_a_refused_worker_does_not_affect_the_old_job(check: bool) -> None:
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
        assert "Correct the field of the spec" in stalled["message"]
        await world.run(120)
        assert world.status()["jobId"] == before
        assert not world.savepoints
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))

    played(scenario)


def test_a_refused_first_deployment_accepts_the_next_edit() -> None:
    async def scenario(world: World) -> None:
        world.cluster.invalid = worker_of(BAD, "apply", "dry-run")
        world.apply(flinkjob(image=BAD))
        await world.until(world.stalled)
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))

    played(scenario)


def test_an_unforeseen_refusal_is_rolled_back() -> None:
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
def test_without_a_rollback_the_next_edit_is_accepted(image: str) -> None:
    async def scenario(world: World) -> None:
        await stuck(world)
        world.edit(image=image)
        await world.until(lambda: running(world, image=image))
        assert len(world.savepoints) == 1
        assert len(world.sink.empty_starts) == 1

    played(scenario)


def test_without_a_rollback_the_job_can_be_suspended() -> None:
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
    """Stop the job when its successor cannot be created and rollback is disabled."""
    world.cluster.invalid = worker_of(BAD, "apply")
    manifest = flinkjob()
    manifest["spec"]["rollback"] = {"enabled": False}
    world.apply(manifest)
    await world.until(lambda: running(world))
    world.edit(image=BAD)
    await world.until(world.stalled)
    assert world.condition("Stalled")["reason"] == "InvalidObject"
    await world.run(60)


def test_a_partial_deployment_is_removed_for_the_next_edit() -> None:
    """The API server accepts the worker Deployment and refuses that of the master."""

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


def test_a_policy_that_forbids_the_pods_is_awaited() -> None:
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


def test_a_refused_ingress_is_reported_while_the_job_runs() -> None:
    def bad_host(verb: str, manifest: dict[str, Any]) -> str | None:
        is_bad = manifest["kind"] == "Ingress" and "bad-host" in str(manifest)
        return "Ingress is invalid: spec.rules[0].host: Invalid value" if is_bad else None

    async def scenario(world: World) -> None:
        world.cluster.invalid = bad_host
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        before = world.status()["jobId"]
        edit(ingress={"host": "bad-host.example.org"})(world)
        await world.until(world.stalled)
        for _ in range(30):
            stalled = world.condition("Stalled")
            assert (stalled["reason"], "spec.rules[0].host" in stalled["message"]) == ("InvalidObject", True)
            assert world.condition("Running")["status"] == "True"
            await world.run(5)
        reported = [reason for reason, _ in world.events()]
        assert reported.count("InvalidObject") == 1
        assert reported.count("Repaired") <= 1
        world.edit(image="job:2")
        await world.run(60)
        assert world.status()["jobId"] == before, "an upgrade would not get an Ingress either"
        edit(ingress={"host": "good.example.org"})(world)
        await world.until(lambda: running(world, image="job:2") and not world.stalled())

    played(scenario)


KINDS = ["ConfigMap", "Secret", "Service", "ServiceAccount", "Deployment"]


def denied(kind: str, *verbs: str) -> Refusal:
    """Refuse objects of a kind, as an admission policy does that is newer than the job."""
    return lambda verb, manifest: f"{kind}: denied by policy" if verb in verbs and manifest["kind"] == kind else None


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "Secret"])
def test_every_object_is_tried_before_the_job_is_stopped(kind: str) -> None:
    async def scenario(world: World) -> None:
        before = await deployed(world)
        world.cluster.invalid = denied(kind, "apply", "create", "dry-run")
        world.edit(image="job:2")
        await world.until(world.stalled)
        await world.run(120)
        assert world.status()["jobId"] == before
        assert not world.savepoints
        world.edit(image="job:1")
        await world.until(lambda: running(world, image="job:1"))

    played(scenario)


def test_a_deleted_secret_is_tried_as_well() -> None:
    async def scenario(world: World) -> None:
        before = await deployed(world)
        world.cluster.invalid = denied("Secret", "apply", "create", "dry-run")
        world.cluster.remove("Secret", "default", "weather-secrets")
        assert world.cluster.one("Secret", "weather-secrets") is None
        world.edit(image="job:2")
        await world.until(world.stalled)
        assert world.status()["jobId"] == before
        assert not world.savepoints

    played(scenario)


def test_a_quota_for_config_maps_is_detected_before_the_job_is_stopped() -> None:
    async def scenario(world: World) -> None:
        before = await deployed(world)
        world.cluster.quotas["ConfigMap"] = len(world.cluster.select("ConfigMap", None, {}))
        world.edit(image="job:2")
        await world.until(world.stalled)
        assert world.condition("Stalled")["reason"] == "QuotaExceeded"
        await world.run(60)
        assert world.status()["jobId"] == before
        assert not world.savepoints
        world.cluster.quotas.clear()
        await world.until(lambda: running(world, image="job:2"))

    played(scenario)


@pytest.mark.parametrize("kind", ["ConfigMap", "Service", "Deployment"])
@pytest.mark.parametrize("wish", ["rollback", "revert"])
def test_a_refusal_after_the_stop_has_an_exit(kind: str, wish: str) -> None:
    """The dry run succeeded before. The former revision returns by rollback, or when the spec is reverted."""

    async def scenario(world: World) -> None:
        manifest = flinkjob()
        manifest["spec"]["rollback"] = {"enabled": wish == "rollback"}
        await deployed(world, manifest)
        room = len(world.cluster.select("ConfigMap", None, {}))

        def refuse(verb: str, manifest: dict[str, Any]) -> str | None:
            new = world.status().get("operation", {}).get("kind") == "Upgrade" and world.savepoints
            return denied(kind, "apply", "create")(verb, manifest) if new else None

        world.cluster.invalid = refuse
        world.edit(image="job:2")
        await world.until(world.stalled)
        world.cluster.quotas["ConfigMap"] = room
        if wish == "revert":
            world.cluster.invalid = lambda verb, manifest: None
            world.edit(image="job:1")
        await world.until(lambda: world.status().get("phase") == "Running" and "operation" not in world.status())
        assert world.status()["running"]["image"] == "job:1"
        assert len(world.savepoints) == 1

    played(scenario)
