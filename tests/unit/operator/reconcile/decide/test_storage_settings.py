"""The settings with which the operator opens storage: a wrong edit must not hide the state of the running job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.operator.world import Image, World, flinkjob, flinksnapshot
from tests.unit.operator.world.scenarios.scenario import (
    FOREIGN,
    deployed,
    gone,
    operations,
    played,
    rejected,
    running,
    stalled,
    suspended,
    with_foreign_savepoint,
)
from tests.unit.operator.world.storage import FakeStorage, Stored

if TYPE_CHECKING:
    from collections.abc import Callable

ELSEWHERE = {"s3.endpoint": "http://elsewhere:9000"}


def where(world: World, storage: FakeStorage, *, edited: bool) -> None:
    """Set the storage that the operator opens with the edited endpoint, or with the former one."""
    world.storage.opened = lambda spec, secret: storage if ("s3.endpoint" in spec.configuration) is edited else None


def with_secret(name: str, **job: Any) -> dict[str, Any]:
    manifest = flinkjob(**job)
    manifest["spec"]["storage"]["secretName"] = name
    return manifest


def fail(world: World) -> None:
    job = world.leading("weather")
    assert job is not None
    job.image = Image(fails_after=0)


async def reject(world: World, **changes: Any) -> None:
    world.images["job:bad"] = Image(check={"ok": False, "problems": [{"code": "USER_CODE", "message": "no"}]})
    world.edit(image="job:bad", **changes)
    await world.until(lambda: rejected(world))


def recovered(wrong: Callable[[World], dict[str, Any]]) -> None:
    async def scenario(world: World) -> None:
        job_id = await deployed(world)
        await reject(world, **wrong(world))
        fail(world)
        await world.until(lambda: operations(world)[0] == "Recover")
        await world.until(lambda: rejected(world) and world.status()["jobState"] == "RUNNING")
        assert world.status()["running"]["image"] == "job:1"
        assert world.sink.restores[0].startswith(f"s3://bucket/checkpoints/{job_id}/")
        assert world.storage.leaders[job_id] == 2, "it was fenced off where it wrote"

    played(scenario)


def test_a_failed_job_is_recovered_despite_the_endpoint_of_an_edit() -> None:
    recovered(wrong_endpoint)


def test_a_failed_job_is_recovered_despite_the_secret_of_an_edit() -> None:
    recovered(wrong_secret)


def test_a_secret_replaced_by_one_of_another_name_is_used() -> None:
    async def scenario(world: World) -> None:
        world.secret("s3-2025")
        await deployed(world, with_secret("s3-2025"))
        world.cluster.remove("Secret", "default", "s3-2025")
        world.secret("s3-2026")
        world.edit(storage={"secretName": "s3-2026"})
        await world.until(lambda: running(world, generation=2))
        assert operations(world) == ["Upgrade", "Deploy"]

    played(scenario)


def test_a_store_without_objects_of_the_job_proves_nothing() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        empty, away = FakeStorage(world.fault), FakeStorage(world.fault, down="connection refused")
        world.storage.opened = lambda spec, secret: empty if "s3.endpoint" in spec.configuration else away
        world.edit(configuration=ELSEWHERE)
        await world.until(lambda: stalled(world, "StorageUnavailable", "connection refused; and with the settings of"))
        assert "has no data of the running job" in world.condition("Stalled")["message"]
        assert world.condition("Running")["status"] == "True"
        world.storage.opened = lambda spec, secret: None
        await world.until(lambda: running(world, generation=2))

    played(scenario)


@pytest.mark.parametrize("found", [True, False], ids=["has-it", "has-nothing"])
def test_a_missing_secret_does_not_reveal_which_store_it_opened(found: bool) -> None:
    """Another Secret may name another endpoint.

    A leader number there fences no master, and an absent object proves nothing.
    """

    async def scenario(world: World) -> None:
        world.secret("s3-2025")
        job_id = await deployed(world, with_secret("s3-2025"))
        other = FakeStorage(world.fault)
        if found:
            other.found = dict(world.storage.found)
        world.storage.opened = lambda spec, secret: other if spec.storage.secret_name == "s3-2026" else None
        world.cluster.remove("Secret", "default", "s3-2025")
        world.secret("s3-2026")
        world.edit(storage={"secretName": "s3-2026"}, job={"upgradeMode": "last-state"})
        if found:
            await world.until(lambda: running(world, generation=2))
            assert other.leaders[job_id] == 1
        else:
            await world.until(lambda: stalled(world, "StorageUnavailable", "has no data of the running job"))
            assert world.condition("Running")["status"] == "True"
            assert job_id not in other.leaders

    played(scenario)


def test_snapshots_that_a_new_spec_names_are_read_with_its_settings() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        with_foreign_savepoint(world)
        where(world, FakeStorage(world.fault), edited=True)
        world.edit(configuration=ELSEWHERE, job={"initialSavepointPath": FOREIGN, "savepointRedeployNonce": 1})
        await world.until(lambda: stalled(world, "SavepointInvalid", f"{FOREIGN} cannot be restored from"))
        assert world.condition("Running")["status"] == "True"

    played(scenario)


def wrong_endpoint(world: World) -> dict[str, Any]:
    where(world, FakeStorage(world.fault, down="connection refused"), edited=True)
    return {"configuration": ELSEWHERE}


def another_store(world: World) -> dict[str, Any]:
    """Return a store that answers and is empty. A deletion there does not affect the original."""
    where(world, FakeStorage(world.fault), edited=True)
    return {"configuration": ELSEWHERE}


def wrong_secret(world: World) -> dict[str, Any]:
    world.secret("s3")
    refused = FakeStorage(world.fault, down="403")
    world.storage.opened = lambda spec, secret: refused if spec.storage.secret_name else None
    return {"storage": {"secretName": "s3"}}


WRONG = pytest.mark.parametrize("wrong", [wrong_endpoint, another_store, wrong_secret])


def completed(world: World, name: str) -> bool:
    return world.snapshots().get(name, {}).get("state") == "Completed"


async def disposed_of(world: World, name: str) -> None:
    path = world.snapshots()[name]["path"]
    assert path in world.storage.found
    world.cluster.remove("FlinkSnapshot", "default", name)
    await world.until(lambda: name not in world.snapshots())
    assert path not in world.storage.found


@WRONG
def test_snapshots_are_taken_and_disposed_of_despite_the_settings_of_an_edit(
    wrong: Callable[[World], dict[str, Any]],
) -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.apply(flinksnapshot("before"))
        await world.until(lambda: completed(world, "before"))
        await reject(world, **wrong(world))
        world.apply(flinksnapshot("after"))
        await world.until(lambda: completed(world, "after"))
        await disposed_of(world, "before")
        world.delete()
        await world.until(lambda: gone(world))
        await disposed_of(world, "after")

    played(scenario)


@WRONG
def test_the_savepoint_of_an_upgrade_is_registered_despite_the_settings_of_an_edit(
    wrong: Callable[[World], dict[str, Any]],
) -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))
        world.edit(**wrong(world))
        await world.until(lambda: any(completed(world, name) for name in world.snapshots(trigger="upgrade")))
        (name,) = world.snapshots(trigger="upgrade")
        await disposed_of(world, name)

    played(scenario)


def test_the_savepoint_of_an_upgrade_is_disposed_of_although_it_was_never_verified() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.edit(image="job:2")
        await world.until(lambda: world.status().get("operation", {}).get("step") == "Watch")
        world.storage.down = "503 SlowDown"
        await world.until(lambda: world.snapshots(trigger="upgrade") != {})
        (name,) = world.snapshots(trigger="upgrade")
        world.cluster.remove("FlinkSnapshot", "default", name)
        await world.run(30)
        world.storage.down = ""
        await world.until(lambda: name not in world.snapshots())
        assert world.savepoints[0] not in world.storage.found

    played(scenario)


@pytest.mark.parametrize("works", [True, False], ids=["the-edit-works", "the-edit-does-not"])
def test_a_savepoint_that_a_person_registers_is_read_with_the_settings_of_the_flinkjob(works: bool) -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        away = FakeStorage(world.fault, down="" if works else "connection refused")
        away.put(Stored(FOREIGN, 7, "f" * 32, 70, world.time))
        where(world, away, edited=True)
        await reject(world, configuration=ELSEWHERE)
        world.apply(flinksnapshot("known", savepoint={"path": FOREIGN}))
        if not works:
            await world.run(30)
            assert world.snapshots()["known"]["state"] == "Pending", "it is not yet known whether the snapshot exists"
            assert "connection refused" in world.snapshots()["known"]["message"]
            away.down = ""
        await world.until(lambda: completed(world, "known"))
        assert world.snapshots()["known"]["storage"]["configuration"] == ELSEWHERE

    played(scenario)


@WRONG
def test_checkpoints_are_deleted_with_their_job_despite_the_settings_of_an_edit(
    wrong: Callable[[World], dict[str, Any]],
) -> None:
    async def scenario(world: World) -> None:
        manifest = flinkjob()
        manifest["spec"]["deletion"] = {"storage": "Delete"}
        job_id = await deployed(world, manifest)
        await reject(world, **wrong(world))
        assert world.storage.of_job(job_id)
        world.delete()
        await world.until(lambda: gone(world))
        assert not world.storage.of_job(job_id)
        assert "StorageKept" not in [reason for reason, _ in world.events()]

    played(scenario)


@pytest.mark.parametrize("suspended_first", [True, False], ids=["suspended", "running"])
def test_a_failed_deletion_for_an_invalid_job_is_reported(suspended_first: bool) -> None:
    async def scenario(world: World) -> None:
        manifest = flinkjob()
        manifest["spec"]["deletion"] = {"storage": "Delete"}
        job_id = await deployed(world, manifest)
        if suspended_first:
            world.edit(job={"state": "suspended"})
            await world.until(lambda: suspended(world))
        world.edit(configuration={"rest.port": 1})
        await world.until(lambda: stalled(world, "InvalidSpec", "rest.port"))
        world.storage.down = "connection refused"
        world.delete()
        await world.until(lambda: gone(world), within=180)
        reported = dict(world.events())["StorageKept"]
        assert reported == (f"checkpoints in s3://bucket/checkpoints/{job_id} could not be deleted: connection refused")

    played(scenario)


def test_checkpoints_of_a_former_incarnation_are_removed_with_its_settings() -> None:
    """The edit can read the savepoint but not delete. The settings of the revision that wrote it can delete."""

    async def scenario(world: World) -> None:
        job_id = await deployed(world)
        reader = FakeStorage(world.fault, found=world.storage.found, disposable=False)
        where(world, reader, edited=True)
        world.edit(configuration=ELSEWHERE)
        await world.until(lambda: running(world, generation=2))
        await world.until(lambda: not world.storage.of_job(job_id))
        assert job_id in world.storage.disposed

    played(scenario)
