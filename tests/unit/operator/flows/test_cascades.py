"""The objects of a FlinkJob exist until its savepoint is taken, for every kind of deletion. None remains afterwards."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from penstock_operator.process import main as program
from penstock_operator.process.orphans import sweep
from tests.unit.operator.world import World, flinkjob
from tests.unit.operator.world.kubernetes.garbage_collector import FOREGROUND
from tests.unit.operator.world.scenarios.scenario import deployed, gone, played, running, suspended
from tests.unit.operator.world.world import NAME

if TYPE_CHECKING:
    from penstock_operator.kube.cluster import Manifest

HOLD = f"{NAME}-hold"


def job(**deletion: Any) -> Manifest:
    manifest = flinkjob()
    manifest["spec"]["deletion"] = deletion
    return manifest


def left(world: World) -> list[Any]:
    return [key for key in world.cluster.objects if key[0] not in ("Event", "FlinkSnapshot")]


def test_the_simulated_collector_deletes_in_the_foreground_as_kubernetes_does() -> None:
    """It deletes dependents first and never those with a solid owner.

    `blockOwnerDeletion` only decides which dependents the owner waits for.
    """
    world = World()

    def put(kind: str, name: str, *owners: str, finalizers: tuple[str, ...] = (), blocks: bool = True) -> None:
        references = [{"uid": f"uid-{o}", "blockOwnerDeletion": blocks} for o in owners]
        meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "ownerReferences": references}
        world.cluster.put({"kind": kind, "metadata": {**meta, "finalizers": list(finalizers)}})

    def there() -> set[str]:
        return {name for _, _, name in world.cluster.objects}

    put("FlinkJob", "job")
    put("ConfigMap", "other")
    put("Deployment", "held", "job", finalizers=("keeps/me",))
    put("Pod", "of-held", "held")
    put("Secret", "free", "job", blocks=False)
    put("Service", "both", "job", "other")
    world.cluster.remove("FlinkJob", "default", "job", foreground=True)
    world.cluster.garbage.collect()
    assert there() == {"job", "other", "held", "of-held", "both"}
    assert "deletionTimestamp" in world.cluster.objects["Pod", "default", "of-held"]["metadata"]
    assert world.cluster.objects["Service", "default", "both"]["metadata"]["ownerReferences"] == [
        {"uid": "uid-other", "blockOwnerDeletion": True}
    ]
    world.cluster.drop("Pod", "default", "of-held")
    world.cluster.garbage.collect()
    assert world.cluster.objects["Deployment", "default", "held"]["metadata"]["finalizers"] == ["keeps/me"]
    world.cluster.change(("Deployment", "default", "held"), lambda m: m["metadata"].update(finalizers=[]))
    world.cluster.garbage.collect()
    assert there() == {"other", "both"}
    world.cluster.remove("ConfigMap", "default", "other")
    world.cluster.garbage.collect()
    assert not there()


@pytest.mark.parametrize("foreground", [True, False], ids=["foreground", "background"])
def test_a_savepoint_is_taken_for_every_kind_of_deletion(foreground: bool) -> None:
    async def scenario(world: World) -> None:
        await deployed(world, job(savepoint=True))
        pods = {p["metadata"]["uid"] for p in world.cluster.select("Pod", None, {})}
        world.delete(foreground=foreground)
        await world.until(lambda: bool(world.savepoints))
        assert {p["metadata"]["uid"] for p in world.cluster.select("Pod", None, {})} == pods
        await world.until(lambda: gone(world))
        await world.run(5)
        assert not left(world), world.describe()
        assert len(world.savepoints) == 1
        assert world.storage.found[world.savepoints[0]].position == world.sink.ends[NAME]
        assert "DeletedWithoutSavepoint" not in dict(world.events())

    played(scenario)


def test_a_foreground_deletion_waits_for_an_operator_that_is_down() -> None:
    """The job keeps running and its master can restart. The new operator has no token yet, and takes the savepoint."""

    async def scenario(world: World) -> None:
        await deployed(world, job(savepoint=True))
        world.delete(foreground=True)
        world.loops.clear()
        world.due.clear()
        for _ in range(60):
            world.tick(1)
        world.crash_master()
        for _ in range(30):
            world.tick(1)
        kinds = {
            "Secret",
            "ConfigMap",
            "Service",
            "ServiceAccount",
            "Deployment",
            "NetworkPolicy",
        }
        assert kinds <= {kind for kind, _, _ in world.cluster.objects}
        assert FOREGROUND not in world.job()["metadata"]["finalizers"]
        await world.until(lambda: gone(world))
        await world.run(5)
        assert not left(world), world.describe()
        assert len(world.savepoints) == 1

    played(scenario)


def test_foreground_deletion_without_a_savepoint_leaves_only_retained_objects() -> None:
    async def scenario(world: World) -> None:
        await deployed(world, job(storage="Delete"))
        assert world.cluster.one("ConfigMap", HOLD) is None
        job_id = world.status()["jobId"]
        world.delete(foreground=True)
        await world.until(lambda: gone(world))
        await world.run(5)
        assert not left(world), world.describe()
        assert world.storage.disposed == [job_id]

    played(scenario)


def test_objects_of_a_job_of_an_earlier_version_are_held_without_a_change_of_its_pods() -> None:
    """The same applies to an edit of `deletion.savepoint`: existing objects get a second owner, and no pod is recreated."""

    async def scenario(world: World) -> None:
        await deployed(world, job())
        pods = {p["metadata"]["uid"] for p in world.cluster.select("Pod", None, {})}
        world.edit(deletion={"savepoint": True})
        await world.until(lambda: world.cluster.one("ConfigMap", HOLD) is not None and running(world))
        await world.run(30)
        assert {p["metadata"]["uid"] for p in world.cluster.select("Pod", None, {})} == pods
        uid = (world.cluster.one("ConfigMap", HOLD) or {})["metadata"]["uid"]
        for (kind, _, name), found in world.cluster.objects.items():
            if kind not in ("FlinkJob", "Event", "Pod", "ControllerRevision") and name != HOLD:
                owners = {r["uid"] for r in found["metadata"]["ownerReferences"]}
                assert owners == {world.job()["metadata"]["uid"], uid}, f"{kind} {name}"
        world.edit(deletion={"savepoint": False})
        await world.until(lambda: world.cluster.one("ConfigMap", HOLD) is None)
        await world.run(30)
        assert {p["metadata"]["uid"] for p in world.cluster.select("Pod", None, {})} == pods
        assert running(world)
        world.delete(foreground=True)
        await world.until(lambda: gone(world))
        await world.run(5)
        assert not left(world), world.describe()
        assert not world.savepoints

    played(scenario)


def test_a_deleted_hold_is_created_again() -> None:
    async def scenario(world: World) -> None:
        await deployed(world, job(savepoint=True))
        world.cluster.remove("ConfigMap", "default", HOLD)
        await world.run(11 * 60)
        assert world.cluster.one("ConfigMap", HOLD) is not None
        world.delete(foreground=True)
        await world.until(lambda: gone(world))
        assert len(world.savepoints) == 1

    played(scenario)


@pytest.mark.parametrize("earlier", [False, True], ids=["new", "made-by-an-earlier-version"])
def test_argo_cd_does_not_count_the_hold_as_a_part_of_an_application(earlier: bool) -> None:
    """Argo CD with label tracking prunes objects with its label that have no owner and are not in the repository."""

    async def scenario(world: World) -> None:
        await deployed(world, job(savepoint=True))
        tracked = {"app.kubernetes.io/instance": NAME}
        if earlier:
            world.cluster.edit("ConfigMap", "default", HOLD, lambda m: m["metadata"]["labels"].update(tracked))
            await world.run(11 * 60)
        for found in list(world.cluster.objects.values()):
            if not found["metadata"].get("ownerReferences"):
                assert not tracked.items() <= (found["metadata"].get("labels") or {}).items(), found["kind"]
        assert world.cluster.one("ConfigMap", HOLD) is not None

    played(scenario)


def test_a_suspended_job_is_deleted_immediately_with_all_objects() -> None:
    async def scenario(world: World) -> None:
        await deployed(world, job(savepoint=True))
        world.edit(job={"state": "suspended"})
        await world.until(lambda: suspended(world))
        world.delete(foreground=True)
        await world.until(lambda: gone(world))
        await world.run(5)
        assert not left(world), world.describe()
        assert len(world.savepoints) == 1

    played(scenario)


def test_a_hold_without_its_flinkjob_is_swept_with_all_objects() -> None:
    """A person removed the finalizer. A new FlinkJob of the same name waits and then starts."""

    async def scenario(world: World) -> None:
        await deployed(world, job(savepoint=True))
        world.cluster.edit("FlinkJob", "default", NAME, lambda m: m["metadata"].update(finalizers=[]))
        world.delete()
        await world.run(30)
        assert world.cluster.one("Deployment", f"{NAME}-master") is not None, "what holds it is still there"
        world.apply(job(savepoint=True))
        await world.run(30)
        assert world.condition("Ready")["reason"] == "NameTaken"
        assert await sweep(world.cluster) == [f"default/{HOLD}"]
        await world.until(lambda: running(world))
        assert await sweep(world.cluster) == []
        assert world.cluster.one("ConfigMap", HOLD) is not None

    asyncio.run(scenario(World()))


def test_a_sweep_covers_the_namespaces_of_the_operator() -> None:
    async def scenario(world: World) -> None:
        await deployed(world, job(savepoint=True))
        world.cluster.drop("FlinkJob", "default", NAME)
        assert await sweep(world.cluster, ["team-a"]) == []
        assert await sweep(world.cluster, ["team-a", "default"]) == [f"default/{HOLD}"]
        world.tick(1)
        world.tick(1)
        assert not left(world)

    asyncio.run(scenario(World()))


def test_a_missing_permission_does_not_block_the_deletion_of_the_flinkjob() -> None:
    async def scenario(world: World) -> None:
        await deployed(world, job(savepoint=True))
        world.cluster.undeletable.add("ConfigMap")
        world.delete(foreground=True)
        await world.until(lambda: gone(world))
        assert len(world.savepoints) == 1
        world.cluster.undeletable.clear()
        assert await sweep(world.cluster) == [f"default/{HOLD}"]
        await world.run(5)
        assert not left(world), world.describe()

    played(scenario)


def test_uninstallation_releases_held_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    asyncio.run(deployed(world, job(savepoint=True)))

    async def close() -> None: ...

    monkeypatch.setattr(world.cluster, "close", close, raising=False)
    monkeypatch.setattr(program, "find_credentials", lambda kubeconfig: None)
    monkeypatch.setattr(program, "HttpCluster", lambda credentials: world.cluster)
    shown = CliRunner().invoke(program.app, ["release"])
    assert f"ConfigMap default/{HOLD}" in shown.output
    assert world.cluster.one("ConfigMap", HOLD) is not None
    assert CliRunner().invoke(program.app, ["release", "--yes"]).exit_code == 0
    world.delete()
    for _ in range(5):
        world.tick(1)
    assert not left(world), world.describe()
