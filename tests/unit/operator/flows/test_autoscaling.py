"""The operator follows the engine's autoscaler: it adds workers before a rescale, removes idle ones after it, and edits no spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.unit.operator.world import World
from tests.unit.operator.world.kubernetes.images import Image
from tests.unit.operator.world.scenarios.cold_scenarios import workers
from tests.unit.operator.world.scenarios.scenario import deployed, played, running, spec, suspended

if TYPE_CHECKING:
    from penstock_operator.kube.cluster import Manifest


def manifest(**autoscaling: Any) -> Manifest:
    return spec(autoscaling={"enabled": True, "max": 8, **autoscaling})


def failovers(world: World) -> int:
    job = world.leading("weather")
    assert job is not None
    return job.failovers


def test_the_job_follows_its_load_and_the_spec_stays_as_it_is() -> None:
    async def story(world: World) -> None:
        await deployed(world, manifest())
        before = world.job()["spec"]
        world.load = 6
        await world.until(lambda: running(world, parallelism=6), within=60)
        world.load = 2
        await world.until(lambda: len(workers(world)) == 2, within=120)
        assert world.status()["parallelism"] == 2
        assert world.job()["spec"] == before
        assert (world.rescales, failovers(world)) == ([6, 2], 0)
        assert "operation" not in world.status()
        reasons = [reason for reason, _ in world.events()]
        found = [reason for reason in reasons if reason in ("AddingWorkers", "Autoscaled", "RemovingWorkers")]
        assert found == ["AddingWorkers", "Autoscaled", "Autoscaled", "RemovingWorkers"]

    played(story)


def test_the_status_shows_the_decisions_and_their_inputs_and_is_written_once_a_minute() -> None:
    async def story(world: World) -> None:
        await deployed(world, manifest())
        await world.run(90)
        found = world.status()["autoscaling"]
        assert {key: found[key] for key in ("mode", "parallelism", "wanted", "reason")} == {
            "mode": "active",
            "parallelism": 2,
            "wanted": 2,
            "reason": "WITHIN_TARGET",
        }
        assert found["inputs"] == [{"name": "count", "parallelism": 2, "busy": 0.912}]
        assert found["decisions"][0]["message"] == "the load needs 2"
        first = int(world.job()["metadata"]["resourceVersion"])
        written: list[int] = []

        async def note() -> None:
            version = int(world.job()["metadata"]["resourceVersion"])
            if version != first and version not in written:
                written.append(version)

        await world.run(600, also=note)
        assert len(written) <= 11, written

    played(story)


@pytest.mark.parametrize(
    ("limit", "reason"), [("quota", "QuotaExceeded"), ("nodes", "Unschedulable")], ids=["quota", "nodes"]
)
def test_without_room_the_job_keeps_its_size_and_the_operator_reports_it(limit: str, reason: str) -> None:
    async def story(world: World) -> None:
        await deployed(world, manifest())
        if limit == "quota":
            world.deployments.quota = 3
        else:
            world.node_capacity = 4  # with the master, three workers
        world.load = 5
        await world.until(lambda: world.condition("AutoscalingLimited").get("status") == "True", within=120)
        found = world.condition("AutoscalingLimited")
        assert found["reason"] == reason
        assert "The job keeps parallelism 2" in found["message"]
        await world.run(300)
        assert running(world, parallelism=2)
        assert (world.rescales, failovers(world)) == ([], 0)
        assert [r for r, _ in world.events()].count("AutoscalingLimited") == 1
        world.deployments.quota, world.node_capacity = None, 100
        await world.until(lambda: running(world, parallelism=5), within=120)
        await world.run(20)
        assert world.condition("AutoscalingLimited")["status"] == "False"

    played(story)


def test_workers_that_are_not_needed_any_more_are_removed() -> None:
    async def story(world: World) -> None:
        await deployed(world, manifest())
        world.node_capacity = 4
        world.load = 5
        await world.until(lambda: len(workers(world)) == 5, within=60)
        world.load = None
        await world.until(lambda: len(workers(world)) == 2, within=120)
        assert (world.rescales, failovers(world)) == ([], 0)

    played(story)


def test_an_upgrade_a_suspension_and_a_restart_keep_the_chosen_parallelism() -> None:
    async def story(world: World) -> None:
        await deployed(world, manifest())
        world.load = 5
        await world.until(lambda: running(world, parallelism=5), within=60)
        world.load = None
        await world.run(20)
        world.edit(image="job:2")
        await world.until(lambda: running(world, parallelism=5, image="job:2"))
        await world.run(30)
        world.edit(job={"state": "suspended"})
        await world.until(lambda: suspended(world))
        assert world.status()["parallelism"] == 5
        world.edit(job={"state": "running"})
        await world.until(lambda: running(world, parallelism=5))
        assert world.rescales == [5]
        world.edit(autoscaling={"max": 3})
        await world.until(lambda: running(world, parallelism=3))

    played(story)


def test_an_edit_of_the_settings_reaches_the_running_job_without_a_restart() -> None:
    async def story(world: World) -> None:
        job_id = await deployed(world, manifest())
        world.load = 6
        await world.until(lambda: running(world, parallelism=6), within=60)
        assert world.settings_sent == 1
        world.edit(autoscaling={"max": 3, "window": "30s"})
        await world.until(lambda: running(world, parallelism=3), within=60)
        job = world.leading("weather")
        assert job is not None
        assert job.autoscaler_keys["job.autoscaler.metrics.window"] == "30s"
        await world.until(lambda: len(workers(world)) == 3, within=120)
        assert (world.status()["jobId"], world.rescales, failovers(world)) == (job_id, [6, 3], 0)
        assert [reason for reason, _ in world.events()].count("AutoscalingConfigured") == 1
        await world.run(300)
        assert world.settings_sent == 2

    played(story)


def test_the_autoscaler_is_turned_on_and_off_while_the_job_runs() -> None:
    async def story(world: World) -> None:
        job_id = await deployed(world, spec())
        assert world.settings_sent == 0
        world.load = 5
        world.edit(autoscaling={"enabled": True, "max": 8})
        await world.until(lambda: running(world, parallelism=5), within=60)
        world.edit(autoscaling={"mode": "recommend"})
        await world.until(lambda: running(world, parallelism=2), within=120)
        world.load = 4
        await world.run(120)
        assert running(world, parallelism=2)
        world.edit(autoscaling={"enabled": False})
        await world.until(lambda: "autoscaling" not in world.status(), within=60)
        job = world.leading("weather")
        assert job is not None
        assert job.autoscaler_mode == "disabled"
        assert (world.status()["jobId"], failovers(world)) == (job_id, 0)

    played(story)


def test_a_master_that_restarts_gets_the_settings_again() -> None:
    async def story(world: World) -> None:
        await deployed(world, manifest())
        world.edit(autoscaling={"max": 3})
        await world.until(lambda: world.settings_sent == 2, within=60)
        world.crash_master()
        await world.until(lambda: world.settings_sent == 3 and running(world), within=120)
        job = world.leading("weather")
        assert job is not None
        assert job.autoscaler_keys["job.autoscaler.vertex.max-parallelism"] == "3"
        assert [reason for reason, _ in world.events()].count("AutoscalingConfigured") == 1

    played(story)


def test_settings_that_the_engine_refuses_are_reported_and_the_job_keeps_running() -> None:
    async def story(world: World) -> None:
        await deployed(world, manifest())
        world.settings_refused = "the utilizations are not ascending"
        world.edit(autoscaling={"target": 0.5})
        await world.until(lambda: world.condition("AutoscalingLimited").get("status") == "True", within=60)
        await world.run(120)
        found = world.condition("AutoscalingLimited")
        assert found["reason"] == "NotApplied"
        assert "not ascending" in found["message"]
        assert running(world, parallelism=2)
        assert [r for r, _ in world.events()].count("AutoscalingLimited") == 1
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))
        world.settings_refused = ""
        await world.until(lambda: world.condition("AutoscalingLimited").get("status") == "False", within=60)

    played(story)


def test_an_engine_without_an_autoscaler_is_reported() -> None:
    async def story(world: World) -> None:
        world.has_autoscaler = False
        await deployed(world, spec())
        world.edit(autoscaling={"enabled": True})
        await world.until(lambda: world.condition("AutoscalingLimited").get("reason") == "NotSupported", within=60)
        await world.run(120)
        assert [r for r, _ in world.events()].count("AutoscalingLimited") == 1
        world.edit(autoscaling={"enabled": False})
        await world.until(lambda: "autoscaling" not in world.status(), within=60)
        assert world.settings_sent == 0

    played(story)


def test_an_edit_during_an_upgrade_is_not_lost() -> None:
    async def story(world: World) -> None:
        await deployed(world, manifest())
        world.load = 6
        await world.until(lambda: running(world, parallelism=6), within=60)
        world.edit(image="job:2", autoscaling={"enabled": False}, job={"parallelism": 3})
        await world.until(lambda: running(world, parallelism=3, image="job:2"))
        job = world.leading("weather")
        assert job is not None
        assert job.autoscaler_mode == "disabled"

    played(story)


def with_memory_limit(**memory: Any) -> Manifest:
    found = manifest(memory={"mode": "apply", "max": "2Gi", **memory})
    found["spec"]["worker"] = {"resources": {"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}}}
    return found


def memory_of_workers(world: World) -> set[str]:
    """Return the limits and requests of the worker pods."""
    found = [pod["spec"]["containers"][0]["resources"] for pod in workers(world)]
    return {str(resources[kind]["memory"]) for resources in found for kind in ("limits", "requests")}


def configured_memory(world: World) -> set[str]:
    """Return the memory of a worker in the configuration of the engine."""
    found = [
        m["data"]["penstock.yaml"] for m in world.cluster.select("ConfigMap", None, {}) if "penstock.yaml" in m["data"]
    ]
    return {str(yaml.safe_load(text)["taskmanager.memory.process.size"]) for text in found}


def test_recommended_memory_is_used_at_the_next_upgrade_and_restarts_nothing() -> None:
    async def story(world: World) -> None:
        job_id = await deployed(world, with_memory_limit())
        before = world.job()["spec"]
        world.memory_advice = 1536
        await world.run(300)
        assert (world.status()["jobId"], memory_of_workers(world)) == (job_id, {"1Gi"})
        assert world.status()["autoscaling"]["memory"] == {"limit": "1024Mi", "recommended": "1536Mi"}
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))
        assert memory_of_workers(world) == {"1536Mi"}
        assert world.status()["running"]["workerMemory"] == "1536Mi"
        assert world.job()["spec"] == {**before, "image": "job:2"}
        world.memory_advice = 64 * 1024
        world.crash_master()
        await world.until(lambda: running(world))
        await world.run(120)
        assert memory_of_workers(world) == {"1536Mi"}, "a restart of the master changes no worker"
        world.edit(job={"state": "suspended"})
        await world.until(lambda: suspended(world))
        world.edit(job={"state": "running"})
        await world.until(lambda: running(world))
        assert memory_of_workers(world) == {"2048Mi"}
        assert configured_memory(world) == {f"{2 << 30}b"}

    played(story)


def test_less_memory_is_used_only_down_to_the_minimum() -> None:
    async def story(world: World) -> None:
        await deployed(world, with_memory_limit())
        world.memory_advice = 256
        await world.run(30)
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))
        assert memory_of_workers(world) == {"1Gi"}
        world.edit(autoscaling={"memory": {"mode": "apply", "min": "512Mi", "max": "2Gi"}})
        world.edit(image="job:3")
        await world.until(lambda: running(world, image="job:3"))
        assert memory_of_workers(world) == {"512Mi"}

    played(story)


def test_recommended_memory_is_not_used_without_permission() -> None:
    async def story(world: World) -> None:
        await deployed(world, with_memory_limit(mode="recommend"))
        world.memory_advice = 1536
        await world.run(30)
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))
        assert memory_of_workers(world) == {"1Gi"}

    played(story)


def test_an_edit_of_the_limit_takes_precedence_over_the_recommendation() -> None:
    async def story(world: World) -> None:
        await deployed(world, with_memory_limit())
        world.memory_advice = 1536
        await world.run(30)
        world.edit(worker={"resources": {"limits": {"memory": "1280Mi"}, "requests": {"memory": "1Gi"}}})
        await world.until(lambda: running(world) and memory_of_workers(world) == {"1280Mi", "1Gi"})

    played(story)


def test_a_rollback_returns_to_the_former_memory() -> None:
    async def story(world: World) -> None:
        world.images["job:2"] = Image(fails_after=1)
        await deployed(world, with_memory_limit())
        world.memory_advice = 1536
        await world.run(30)
        world.edit(image="job:2")
        await world.until(lambda: world.stalled() and "operation" not in world.status())
        assert world.status()["running"]["image"] == "job:1"
        assert memory_of_workers(world) == {"1Gi"}

    played(story)


def test_a_lost_status_does_not_change_the_memory_of_running_pods() -> None:
    async def story(world: World) -> None:
        await deployed(world, with_memory_limit())
        world.memory_advice = 1536
        await world.run(30)
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))
        await world.run(30)
        names = {pod["metadata"]["name"] for pod in workers(world)}
        world.cluster.edit("FlinkJob", "default", "weather", lambda m: m.pop("status"))
        world.restart_operator()
        await world.until(lambda: world.status().get("running", {}).get("workerMemory") == "1536Mi")
        await world.run(120)
        assert {pod["metadata"]["name"] for pod in workers(world)} == names
        assert memory_of_workers(world) == {"1536Mi"}

    played(story)


def test_a_failed_revision_is_rolled_back_to_the_chosen_parallelism() -> None:
    async def story(world: World) -> None:
        world.images["job:2"] = Image(fails_after=1)
        await deployed(world, manifest())
        world.load = 4
        await world.until(lambda: running(world, parallelism=4), within=60)
        world.load = None
        await world.run(20)
        world.edit(image="job:2")
        await world.until(lambda: world.stalled() and "operation" not in world.status())
        assert world.status()["parallelism"] == 4
        assert world.status()["running"]["image"] == "job:1"

    played(story)


def test_job_parallelism_takes_effect_when_the_autoscaler_is_turned_off() -> None:
    async def story(world: World) -> None:
        await deployed(world, manifest())
        world.load = 4
        await world.until(lambda: running(world, parallelism=4), within=60)
        world.edit(job={"parallelism": 3})  # an API server without CEL rules lets this edit through
        await world.run(120)
        assert running(world, parallelism=4)
        world.edit(autoscaling={"enabled": False})
        await world.until(lambda: running(world, parallelism=3))
        assert "autoscaling" not in world.status()
        assert world.condition("AutoscalingLimited") == {}

    played(story)


def test_a_recommendation_is_reported_and_changes_nothing() -> None:
    async def story(world: World) -> None:
        await deployed(world, manifest(mode="recommend"))
        world.load = 4
        await world.run(300)
        assert running(world, parallelism=2)
        assert len(workers(world)) == 2
        found = [message for reason, message in world.events() if reason == "AutoscalerRecommends"]
        assert len(found) == 1
        assert "recommends parallelism 4 instead of 2" in found[0]
        assert world.status()["autoscaling"]["wanted"] == 4
        world.edit(job={"parallelism": 3})
        await world.until(lambda: running(world, parallelism=3))

    played(story)


def test_a_suspended_job_is_not_limited() -> None:
    async def story(world: World) -> None:
        await deployed(world, manifest())
        world.load, world.limit = 4, "AT_MAX_PARALLELISM"
        await world.until(lambda: world.condition("AutoscalingLimited").get("status") == "True", within=60)
        world.edit(job={"state": "suspended"})
        await world.until(lambda: suspended(world))
        await world.run(60)
        assert world.condition("AutoscalingLimited")["status"] == "False"
        found = world.status()["autoscaling"]
        assert (found["parallelism"], found["reason"], found.get("decisions")) == (2, "NOT_RUNNING", [])

    played(story)


def test_a_hot_key_is_a_condition_and_adds_no_workers() -> None:
    async def story(world: World) -> None:
        await deployed(world, manifest())
        world.load, world.limit = 4, "HOT_KEY"
        await world.until(lambda: world.condition("AutoscalingLimited").get("status") == "True", within=60)
        assert world.condition("AutoscalingLimited")["reason"] == "HotKey"
        assert world.condition("Ready")["status"] == "True"
        assert len(workers(world)) == 2

    played(story)


def test_a_master_cannot_request_more_workers_than_the_spec_allows() -> None:
    async def story(world: World) -> None:
        world.ignores_limits = True
        await deployed(world, manifest(max=4))
        world.load = 10_000
        await world.run(120)
        assert len(workers(world)) == 4
        assert running(world, parallelism=2)

    played(story)


def test_a_lost_status_does_not_change_the_parallelism() -> None:
    async def story(world: World) -> None:
        await deployed(world, manifest())
        world.load = 4
        await world.until(lambda: running(world, parallelism=4), within=60)
        world.load = None
        await world.run(20)
        world.cluster.edit("FlinkJob", "default", "weather", lambda m: m.pop("status"))
        world.restart_operator()
        await world.until(lambda: world.status().get("parallelism") == 4)
        await world.run(120)
        assert len(workers(world)) == 4
        assert failovers(world) == 0

    played(story)
