"""A FlinkSnapshot owns the files that the operator created for that object.

A name, a label or an answer of the engine proves no ownership.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

import pytest

from penstock_operator.engine.account import Request
from penstock_operator.resources.names import is_savepoint_of, snapshot_folder
from tests.unit.operator.snapshot.test_snapshots import run, started, state
from tests.unit.operator.world import Image, World, engine, flinkjob, flinksnapshot
from tests.unit.operator.world.engine import FakeEngineClient
from tests.unit.operator.world.scenarios.scenario import FOREIGN, played, running, spec, with_foreign_savepoint

if TYPE_CHECKING:
    from penstock_operator.engine.client import RequestKind


def remove(world: World, name: str) -> None:
    world.cluster.remove("FlinkSnapshot", "default", name)


def is_gone(world: World, name: str) -> bool:
    return world.cluster.one("FlinkSnapshot", name) is None


def test_a_reused_name_takes_a_new_savepoint() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        world.apply(flinksnapshot("nightly", savepoint={"disposeOnDelete": False}))
        await world.until(lambda: state(world, "nightly") == "Completed")
        first = world.snapshots()["nightly"]
        remove(world, "nightly")
        await world.until(lambda: is_gone(world, "nightly"))
        await world.run(30)
        world.apply(flinksnapshot("nightly"))
        await world.until(lambda: state(world, "nightly") == "Completed")
        second = world.snapshots()["nightly"]
        assert second["checkpointId"] > first["checkpointId"], "it is the state of now, not of then"
        assert second["path"] != first["path"]
        remove(world, "nightly")
        await world.until(lambda: is_gone(world, "nightly"))
        assert first["path"] in world.storage.found
        assert second["path"] not in world.storage.found

    run(scenario)


@pytest.mark.parametrize("with_status", [True, False])
def test_a_copy_deletes_no_files_of_the_original(with_status: bool) -> None:
    """A backup is restored beside the original, with its status or without it."""

    async def scenario(world: World) -> None:
        await started(world)
        world.apply(flinksnapshot("original"))
        await world.until(lambda: state(world, "original") == "Completed")
        path = world.snapshots()["original"]["path"]
        copy = deepcopy(world.cluster.one("FlinkSnapshot", "original"))
        assert copy is not None
        for field in ("uid", "resourceVersion", "creationTimestamp"):
            del copy["metadata"][field]
        copy["metadata"]["name"] = "copy"
        if not with_status:
            del copy["status"]
        world.cluster.put(copy)
        await world.until(lambda: state(world, "copy") == "Completed")
        remove(world, "copy")
        await world.until(lambda: is_gone(world, "copy"))
        assert path in world.storage.found

    run(scenario)


@pytest.mark.parametrize("trigger", ["upgrade", "periodic", "nonce"])
def test_no_label_allows_the_deletion_of_a_registered_savepoint(trigger: str) -> None:
    async def scenario(world: World) -> None:
        with_foreign_savepoint(world)
        await started(world)
        manifest = flinksnapshot("forged", savepoint={"path": FOREIGN})
        manifest["metadata"]["labels"] = {"penstock.dev/trigger": trigger, "penstock.dev/job": "weather"}
        world.apply(manifest)
        await world.until(lambda: state(world, "forged") == "Completed")
        remove(world, "forged")
        await world.until(lambda: is_gone(world, "forged"))
        assert FOREIGN in world.storage.found

    run(scenario)


def test_a_foreign_location_in_the_answer_to_a_stop_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lies(self: FakeEngineClient, job_id: str, kind: RequestKind, request_id: str) -> Request:
        return Request(request_id, "Completed", location=FOREIGN)

    monkeypatch.setattr(FakeEngineClient, "request", lies)

    async def story(world: World) -> None:
        world.apply(spec(snapshots={"retention": {"count": 1}}))
        await world.until(lambda: running(world))
        await world.run(25)
        committed = world.sink.ends["weather"]
        with_foreign_savepoint(world)
        world.sink.ends["weather"] = committed
        for image in ("job:2", "job:3"):
            world.edit(image=image)
            await world.until(lambda image=image: running(world, image=image))
            await world.run(30)
        assert FOREIGN in world.storage.found
        assert FOREIGN not in world.sink.restores
        registered = [s.get("path") for s in world.snapshots(trigger="upgrade").values()]
        assert FOREIGN not in registered
        assert "SavepointFailed" in dict(world.events())

    played(story)


def test_a_snapshot_that_is_deleted_during_its_write_leaves_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ACTION_TIME", 12.0)

    async def scenario(world: World) -> None:
        await started(world)
        world.apply(flinksnapshot("doomed"))
        await world.until(lambda: state(world, "doomed") == "InProgress")
        await world.run(3)
        remove(world, "doomed")
        await world.until(lambda: bool(world.savepoints))
        await world.until(lambda: is_gone(world, "doomed"), within=60)
        await world.run(30)
        assert not [path for path in world.storage.found if path in world.savepoints]

    run(scenario)


def test_a_snapshot_that_the_engine_never_completes_does_not_hang_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ACTION_TIME", 10_000.0)

    async def scenario(world: World) -> None:
        await started(world)
        world.apply(flinksnapshot("doomed", timeout="60s"))
        await world.until(lambda: state(world, "doomed") == "InProgress")
        remove(world, "doomed")
        await world.until(lambda: is_gone(world, "doomed"), within=120)

    run(scenario)


@pytest.mark.parametrize("again", [False, True], ids=["gone", "another-of-its-name"])
def test_a_snapshot_of_a_deleted_job_is_abandoned(again: bool) -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(savepoints=False)
        await started(world)
        world.apply(flinksnapshot("late", backoffLimit=-1))
        await world.until(lambda: world.snapshots()["late"].get("failures", 0) > 0)
        world.cluster.edit("FlinkJob", "default", "weather", lambda m: m["metadata"].update(finalizers=[]))
        world.delete()
        world.cluster.garbage.collect()
        world.loops.pop(("FlinkSnapshot", "late"), None)
        if again:
            world.images["job:1"] = Image()
            await started(world)
        await world.until(lambda: state(world, "late") == "Abandoned", within=300)
        assert "no longer exists" in world.snapshots()["late"]["message"]

    run(scenario)


def test_a_snapshot_in_a_namespace_that_is_being_deleted_is_removed_soon() -> None:
    """The Secret for the storage is deleted before the FlinkSnapshot, and is not restored."""

    async def scenario(world: World) -> None:
        world.secret("keys")
        manifest = flinkjob()
        manifest["spec"]["storage"]["secretName"] = "keys"
        world.apply(manifest)
        await world.until(lambda: running(world))
        world.apply(flinksnapshot("mine"))
        await world.until(lambda: state(world, "mine") == "Completed")
        world.cluster.drop("Secret", "default", "keys")
        world.delete()
        remove(world, "mine")
        await world.until(lambda: is_gone(world, "mine"), within=420)
        reported = dict(world.events())
        assert "FilesKept" in reported
        assert "keys" in reported["FilesKept"]

    run(scenario)


FOLDER = snapshot_folder("default", "weather", "0a1b2c3d-4e", "nightly", "9f8e7d6c-5b", 0)


@pytest.mark.parametrize(
    ("path", "own"),
    [
        (f"s3://bucket/savepoints/{FOLDER}/savepoint-1-2", True),
        (f"file:///data/savepoints/{FOLDER}/savepoint-1-2", True),
        (f"s3://bucket/{FOLDER}/savepoint-1-2", True),
        (f"s3://bucket/savepoints/{FOLDER}/chk-7", False),
        (f"s3://bucket/savepoints/{FOLDER}/../x/savepoint-1-2", False),
        (f"s3://bucket/savepoints/{FOLDER}/savepoint-1-2/..", False),
        (f"s3://bucket/savepoints/{FOLDER}//savepoint-1-2", False),
        (f"s3://bucket/savepoints/{FOLDER}", False),
        ("s3://bucket/savepoints/prod/weather-0a1b2c3d/nightly-0/savepoint-1-2", False),
        ("s3://bucket/savepoints/default/sales-0a1b2c3d/nightly-0/savepoint-1-2", False),
        ("s3://bucket/savepoints/default/weather-of-today-0a1b2c3d/nightly-0/savepoint-1-2", False),
        ("s3://bucket/savepoints/savepoint-1-2", False),
        ("", False),
        ("savepoint-1-2", False),
    ],
)
def test_only_the_folders_of_the_flinkjob_contain_its_savepoints(path: str, own: bool) -> None:
    assert is_savepoint_of("default", "weather", path) is own
