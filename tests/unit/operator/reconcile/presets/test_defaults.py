"""Defaults of a platform for FlinkJobs: merged below the fields of the job, and applied only at its next start."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from penstock_operator.errors import Denied
from penstock_operator.reconcile.presets.config_maps import KEPT_FOR, ClusterPresets
from penstock_operator.reconcile.presets.defaults import merged_over, preset
from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.scenarios.scenario import played, rejected, running, stalled

if TYPE_CHECKING:
    from penstock_operator.kube.cluster import Manifest

OWN = "penstock-system"


def config_map(namespace: str, spec: dict[str, Any] | str) -> Manifest:
    text = spec if isinstance(spec, str) else yaml.safe_dump(spec)
    meta = {"name": "flinkjob-defaults", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"spec": text}}


def put(world: World, spec: dict[str, Any] | str, namespace: str = "default") -> None:
    """Create or change the ConfigMap, and wait until the operator must read it again."""
    world.cluster.drop("ConfigMap", namespace, "flinkjob-defaults")
    world.cluster.put(config_map(namespace, spec))


def with_presets(world: World) -> World:
    world.ports = replace(world.ports, presets=ClusterPresets(world.cluster, OWN, world.ports.monotonic))
    return world


def environment(world: World) -> dict[str, str]:
    deployment = world.cluster.one("Deployment", "weather-worker") or {}
    return {e["name"]: e.get("value", "") for e in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}


def setting(world: World, key: str) -> Any:
    (found,) = [
        yaml.safe_load(m["data"]["penstock.yaml"])
        for m in world.cluster.select("ConfigMap", None, {"penstock.dev/job": "weather"})
        if "penstock.yaml" in m["data"]
    ][-1:]
    return found.get(key)


def test_the_namespace_overrides_the_cluster_and_the_job_overrides_both() -> None:
    async def scenario(world: World) -> None:
        with_presets(world)
        put(
            world,
            {"configuration": {"a": 1, "b": 1, "c": 1}, "worker": {"resources": {"limits": {"memory": "1Gi"}}}},
            OWN,
        )
        put(world, {"configuration": {"b": 2, "c": 2}})
        manifest = flinkjob()
        manifest["spec"].setdefault("configuration", {})["c"] = 3
        world.apply(manifest)
        await world.until(lambda: running(world))
        assert [setting(world, key) for key in "abc"] == [1, 2, 3]
        assert setting(world, "taskmanager.memory.process.size") == f"{2**30}b"

    played(scenario)


def test_a_changed_default_waits_for_the_next_start() -> None:
    async def scenario(world: World) -> None:
        with_presets(world)
        put(world, {"configuration": {"a": 1}})
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        job_id = world.status()["jobId"]
        put(world, {"configuration": {"a": 2}})
        await world.run(300, pace=5)
        assert running(world, jobId=job_id)
        assert setting(world, "a") == 1
        world.edit(job={"parallelism": 3})
        await world.until(lambda: running(world, parallelism=3))
        assert world.status()["jobId"] == job_id, "a rescale is not a start"
        world.edit(job={"restartNonce": 1})
        await world.until(lambda: running(world) and world.status()["jobId"] != job_id)
        assert setting(world, "a") == 2
        (event,) = [text for reason, text in world.events() if reason == "UpgradeStarted"]
        assert "configuration.a: 1 → 2" in event

    played(scenario)


async def with_a_changed_default(world: World) -> str:
    """Start a job, change a default, and return the job's id."""
    with_presets(world)
    put(world, {"configuration": {"a": 1}})
    world.apply(flinkjob())
    await world.until(lambda: running(world))
    await world.run(30)
    put(world, {"configuration": {"a": 2}})
    await world.run(60)
    return str(world.status()["jobId"])


async def restarts_nothing(world: World, job_id: str) -> None:
    """Check that a reverted edit of the image restarts nothing."""
    assert world.status()["defaults"] == {"configuration": {"a": 1}}, "what runs was not started with another"
    assert not world.status()["revisionDefaults"]
    upgrades = [text for reason, text in world.events() if reason == "UpgradeStarted"]
    world.edit(image="job:1")
    await world.run(300, pace=5)
    assert (world.status()["jobId"], setting(world, "a")) == (job_id, 1)
    assert [text for reason, text in world.events() if reason == "UpgradeStarted"] == upgrades


def test_a_reverted_rejected_edit_restarts_nothing_although_a_default_has_changed() -> None:
    async def scenario(world: World) -> None:
        job_id = await with_a_changed_default(world)
        world.images["job:2"] = Image(check_crashes=True)
        world.edit(image="job:2")
        await world.until(lambda: rejected(world))
        await restarts_nothing(world, job_id)

    played(scenario)


def test_a_reverted_edit_after_its_rollback_restarts_nothing_although_a_default_has_changed() -> None:
    async def scenario(world: World) -> None:
        former = await with_a_changed_default(world)
        world.images["job:2"] = Image(checkpoints=False)
        world.edit(image="job:2")
        await world.until(lambda: world.status()["defaults"] == {"configuration": {"a": 2}}, within=600)
        assert [kept["defaults"] for kept in world.status()["revisionDefaults"]] == [{"configuration": {"a": 1}}]
        await world.until(lambda: rejected(world) and "operation" not in world.status(), within=1800, pace=5)
        assert world.status()["jobId"] != former
        await restarts_nothing(world, world.status()["jobId"])

    played(scenario)


def test_an_upgrade_continues_with_the_defaults_of_its_start() -> None:
    async def scenario(world: World) -> None:
        await with_a_changed_default(world)
        world.edit(image="job:2")
        await world.until(lambda: "operation" in world.status())
        target = world.status()["operation"]["targetRevision"]
        put(world, {"configuration": {"a": 3}})
        await world.run(35)
        await world.until(lambda: running(world) and world.settled())
        assert world.status()["running"]["revision"] == target
        assert world.status()["defaults"] == {"configuration": {"a": 2}}
        assert len([reason for reason, _ in world.events() if reason == "UpgradeStarted"]) == 1

    played(scenario)


def test_a_removed_default_also_waits() -> None:
    async def scenario(world: World) -> None:
        with_presets(world)
        put(world, {"configuration": {"a": 1}})
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        world.cluster.drop("ConfigMap", "default", "flinkjob-defaults")
        await world.run(120)
        assert setting(world, "a") == 1
        world.edit(job={"state": "suspended"})
        await world.until(lambda: world.settled() and world.status()["phase"] == "Suspended")
        world.edit(job={"state": "running"})
        await world.until(lambda: running(world))
        assert setting(world, "a") is None

    played(scenario)


def test_jobs_older_than_the_defaults_are_not_restarted() -> None:
    async def scenario(world: World) -> None:
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        job_id = world.status()["jobId"]
        with_presets(world)
        for loop in world.loops.values():
            loop._ports = world.ports
        put(world, {"configuration": {"a": 1}})
        await world.run(300, pace=5)
        assert world.status()["jobId"] == job_id
        assert running(world)

    played(scenario)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "spec is not YAML"),
        ("[]", "spec is not an object"),
        ("{image: 'x'}", "image: this field cannot be preset"),
        ("{worker: {slots: 2}}", "worker.slots: this field cannot be preset"),
        ("{configuration: [1]}", "configuration: it must be an object"),
        ("{configuration: {rest.port: 1}}", "spec.configuration['rest.port']"),
    ],
)
def test_invalid_defaults_are_reported_only_for_the_jobs_that_would_use_them(text: str, words: str) -> None:
    async def scenario(world: World) -> None:
        with_presets(world)
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        job_id = world.status()["jobId"]
        put(world, text)
        await world.run(120)
        assert running(world)
        assert not world.stalled()
        world.edit(job={"restartNonce": 1})
        await world.until(lambda: stalled(world, "InvalidSpec", words))
        assert world.status()["jobId"] == job_id, "the running job is left alone"
        put(world, "{}")
        await world.until(lambda: running(world) and world.status()["jobId"] != job_id)

    played(scenario)


def test_an_ingress_is_a_template() -> None:
    presets = {"ingress": {"host": "jobs.example.com", "path": "/{namespace}/{name}", "annotations": {"a": "{name}"}}}
    assert merged_over(presets, {}, "team", "weather")["ingress"] == {
        "host": "jobs.example.com", "path": "/team/weather", "annotations": {"a": "weather"},
    }  # fmt: skip
    own = {"ingress": {"host": "weather.example.com"}}
    assert merged_over(presets, own, "team", "weather") == own


def test_templates_are_merged_as_in_a_flinkjob() -> None:
    found = preset(
        {"a": "{podTemplate: {spec: {tolerations: [{key: spot}]}}}", "b": "podTemplate: {spec: {nodeSelector: {x: y}}}"}
    )
    assert found.spec == {"podTemplate": {"spec": {"tolerations": [{"key": "spot"}], "nodeSelector": {"x": "y"}}}}


def test_null_in_a_jobs_template_still_removes_fields_of_the_operator() -> None:
    template = {"spec": {"tolerations": None, "volumes": [{"name": "work", "emptyDir": {"sizeLimit": "1Gi"}}]}}
    claim = {"name": "work", "persistentVolumeClaim": {"claimName": "all"}}
    presets: dict[str, Any] = {
        "worker": {"podTemplate": {"spec": {"tolerations": [{"key": "spot"}], "volumes": [claim]}}}
    }
    presets["configuration"] = {"a": 1, "b": 1}
    raw = {"worker": {"podTemplate": template}, "configuration": {"a": None}}
    assert merged_over(presets, raw, "team", "weather") == {
        "worker": {"podTemplate": template}, "configuration": {"b": 1},
    }  # fmt: skip


def test_defaults_are_read_once_in_half_a_minute_for_a_namespace() -> None:
    class Counting:
        reads = 0
        denied = False

        async def get(self, kind: Any, namespace: str, name: str) -> Manifest | None:
            self.reads += 1
            if self.denied:
                raise Denied("configmaps is forbidden")
            return config_map(namespace, {"configuration": {"a": namespace}})

    async def scenario() -> None:
        cluster, clock = Counting(), [0.0]
        presets = ClusterPresets(cluster, OWN, lambda: clock[0])  # type: ignore[arg-type]
        for _ in range(50):
            assert (await presets.of("team")).spec == {"configuration": {"a": "team"}}
        assert cluster.reads == 2
        cluster.denied = True
        clock[0] = KEPT_FOR
        refused = await presets.of("team")
        assert refused.spec is None
        assert "flinkjob-defaults: it cannot be read" in str(refused.problem)

    asyncio.run(scenario())
