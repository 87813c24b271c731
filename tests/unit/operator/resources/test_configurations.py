"""An incarnation keeps its own configuration from start to end, for any version of the operator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from penstock_operator.errors import Invalid
from penstock_operator.resources import configuration
from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.scenarios.scenario import deployed, played, rejected, running
from tests.unit.operator.world.world import NAME

if TYPE_CHECKING:
    from penstock_operator.kube.cluster import Manifest

FORMER = f"{NAME}-config"


def configs(world: World) -> dict[str, Manifest]:
    """Return the ConfigMaps with a `penstock.yaml` by name."""
    found = world.cluster.select("ConfigMap", None, {"penstock.dev/job": NAME})
    return {m["metadata"]["name"]: m for m in found if "penstock.yaml" in m["data"]}


def keys(config: Manifest) -> dict[str, Any]:
    return dict(yaml.safe_load(config["data"]["penstock.yaml"]))


def pods(world: World) -> set[str]:
    return {p["metadata"]["uid"] for p in world.cluster.select("Pod", None, {})}


def reported(world: World) -> list[str]:
    return [reason for reason, _ in world.events()]


def another_operator(world: World) -> None:
    """Start another operator, which reads everything again."""
    world.loops.clear()
    world.due.clear()


def made_by_the_version_before(world: World) -> None:
    """Change the objects to those of the previous version.

    It has one ConfigMap for all incarnations, which contains the parallelism. Some keys and pods differ from this
    version.
    """
    (own,) = configs(world).values()

    def of_before(template: dict[str, Any]) -> None:
        container = template["spec"]["containers"][0]
        if "--parallelism" in container["args"]:
            at = container["args"].index("--parallelism")
            del container["args"][at : at + 2]
            container["env"] = [e for e in container["env"] if e["name"] != "PENSTOCK_PARALLELISM"]
        volume = next(v for v in template["spec"]["volumes"] if v["name"] == "config")
        volume["projected"]["sources"][0]["configMap"]["name"] = FORMER

    for deployment in world.cluster.select("Deployment", None, {}):
        role = deployment["metadata"]["labels"]["penstock.dev/role"]

        def change(manifest: Manifest) -> None:
            of_before(manifest["spec"]["template"])
            manifest["metadata"]["annotations"]["penstock.dev/applied"] = "of-before"

        world.cluster.edit("Deployment", "default", deployment["metadata"]["name"], change)
        live = world.cluster.one("Deployment", deployment["metadata"]["name"]) or {}
        text = json.dumps(live["spec"]["template"], sort_keys=True)
        for pod in world.cluster.select("Pod", None, {"penstock.dev/role": role}):

            def same(manifest: Manifest, text: str = text) -> None:
                of_before(manifest)
                manifest["x-template"] = text

            world.cluster.edit("Pod", "default", pod["metadata"]["name"], same)
    world.deployments.forget()
    meta = {**own["metadata"], "name": FORMER}
    meta["labels"] = {k: v for k, v in meta["labels"].items() if not k.endswith(("role", "component"))}
    for field in ("uid", "resourceVersion", "creationTimestamp"):
        meta.pop(field)
    text = configuration.render({**keys(own), "parallelism.default": 2, "key.of.before": 1})
    world.cluster.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"penstock.yaml": text}})
    world.cluster.drop("ConfigMap", "default", own["metadata"]["name"])
    world.cluster.drop("ConfigMap", "default", f"{NAME}-parallelism")


def test_a_new_version_of_the_operator_changes_nothing_of_a_running_job_until_its_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        before, there = configs(world), pods(world)
        monkeypatch.setitem(configuration.DEFAULTS, "key.of.the.new.version", "1")
        another_operator(world)
        world.cluster.writes.clear()
        await world.run(11 * 60)
        assert configs(world) == before
        assert pods(world) == there
        assert [w for w in world.cluster.writes if "status" not in w] == []
        world.crash_master()
        await world.until(lambda: running(world) and len(world.sink.restores) == 1)
        assert configs(world) == before
        world.edit(job={"restartNonce": 1})
        await world.until(lambda: running(world, generation=2))
        (after,) = configs(world).values()
        assert "key.of.the.new.version" in keys(after)
        assert after["metadata"]["name"] not in before
        assert after["immutable"] is True
        assert "Repaired" not in reported(world)

    played(scenario)


def test_a_job_of_the_previous_version_is_neither_restarted_nor_changed() -> None:
    async def scenario(world: World) -> None:
        job_id = await deployed(world)
        made_by_the_version_before(world)
        before, there = configs(world), pods(world)
        another_operator(world)
        world.cluster.writes.clear()
        await world.run(11 * 60)
        assert configs(world) == before
        assert list(before) == [FORMER]
        assert pods(world) == there
        assert [w for w in world.cluster.writes if "status" not in w] == []
        assert world.status()["jobId"] == job_id

    played(scenario)


def test_a_live_rescale_of_such_a_job_changes_one_number_that_a_restarted_master_reads() -> None:
    async def scenario(world: World) -> None:
        job_id = await deployed(world)
        made_by_the_version_before(world)
        another_operator(world)
        before = keys(configs(world)[FORMER])
        world.edit(job={"parallelism": 4})
        await world.until(lambda: running(world, parallelism=4))
        assert keys(configs(world)[FORMER]) == {**before, "parallelism.default": 4}
        assert list(configs(world)) == [FORMER]
        world.crash_master()
        await world.until(lambda: running(world) and len(world.sink.restores) == 1)
        job = world.leading(NAME)
        assert job is not None
        assert (job.parallelism, job.job_id) == (4, job_id)

    played(scenario)


def test_a_job_of_an_earlier_operator_gets_its_own_configuration_with_its_next_start() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        made_by_the_version_before(world)
        another_operator(world)
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))
        (name,) = configs(world)
        assert name != FORMER
        await world.run(11 * 60)
        assert list(configs(world)) == [name]
        assert "Repaired" not in reported(world)

    played(scenario)


@pytest.mark.parametrize("role", ["master", "worker"])
def test_recreated_objects_of_such_a_job_are_complete(role: str) -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        made_by_the_version_before(world)
        another_operator(world)
        world.edit(job={"parallelism": 4})
        await world.until(lambda: running(world, parallelism=4))
        world.cluster.remove("Deployment", "default", f"{NAME}-{role}")
        await world.run(30)
        await world.until(lambda: running(world, parallelism=4))
        world.crash_master()
        await world.run(60)
        await world.until(lambda: running(world, parallelism=4))

    played(scenario)


def test_a_live_rescale_keeps_the_configuration_and_a_restarted_master_reads_the_number() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        before = configs(world)
        world.edit(job={"parallelism": 4})
        await world.until(lambda: running(world, parallelism=4))
        assert configs(world) == before
        world.crash_master()
        await world.until(lambda: running(world) and len(world.sink.restores) == 1)
        job = world.leading(NAME)
        assert job is not None
        assert job.parallelism == 4

    played(scenario)


def test_a_configuration_is_immutable_and_a_deleted_one_is_recreated() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        ((name, before),) = configs(world).items()
        with pytest.raises(Invalid, match="immutable"):
            world.cluster.edit("ConfigMap", "default", name, lambda m: m["data"].update({"penstock.yaml": "a: 1"}))
        world.cluster.drop("ConfigMap", "default", name)
        world.cluster.drop("ConfigMap", "default", f"{NAME}-parallelism")
        await world.run(11 * 60)
        assert configs(world)[name]["data"] == before["data"]
        world.crash_master()
        await world.until(lambda: running(world) and len(world.sink.restores) == 1)

    played(scenario)


def test_a_rollback_starts_with_the_configuration_of_the_former_revision() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.images["job:bad"] = Image(starts=False)
        world.edit(image="job:bad", configuration={"state.backend.type": "rocksdb"})
        await world.until(lambda: rejected(world) and world.status()["phase"] == "Running")
        (config,) = configs(world).values()
        assert "state.backend.type" not in keys(config)

    played(scenario)


def test_an_edit_that_only_the_operator_uses_also_waits_for_the_next_start() -> None:
    """`storage.savepoints` is in the configuration. A running job is not changed for it."""

    async def scenario(world: World) -> None:
        await deployed(world)
        before = configs(world)
        world.edit(storage={"savepoints": "s3://bucket/other"})
        await world.run(60)
        assert running(world, generation=1)
        assert configs(world) == before

    played(scenario)


def test_an_interrupted_start_leaves_no_configuration() -> None:
    async def scenario(world: World) -> None:
        await deployed(world, flinkjob())
        stray = next(iter(configs(world).values()))
        meta = {k: v for k, v in stray["metadata"].items() if k in ("namespace", "labels", "ownerReferences")}
        world.cluster.put({**stray, "metadata": {**meta, "name": f"{FORMER}-0000000000"}})
        await world.run(11 * 60)
        assert list(configs(world)) == [stray["metadata"]["name"]]

    played(scenario)
