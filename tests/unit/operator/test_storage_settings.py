"""With whose settings storage is opened: a wrong edit must not hide the state of the job that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.unit.operator.test_recovery import deployed, operations, play, stalled
from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.scenario import FOREIGN, rejected, running, with_foreign_savepoint
from tests.unit.operator.world.storage import FakeStorage

if TYPE_CHECKING:
    from collections.abc import Callable

ELSEWHERE = {"s3.endpoint": "http://elsewhere:9000"}


def where(world: World, storage: FakeStorage, *, edited: bool) -> None:
    """What the operator gets with the edited endpoint, or with the one before it."""
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

    play(scenario)


def test_a_failed_job_is_recovered_whatever_endpoint_an_edit_names() -> None:
    def wrong(world: World) -> dict[str, Any]:
        where(world, FakeStorage(world.fault, down="connection refused"), edited=True)
        return {"configuration": ELSEWHERE}

    recovered(wrong)


def test_a_failed_job_is_recovered_whatever_secret_an_edit_names() -> None:
    def wrong(world: World) -> dict[str, Any]:
        world.secret("s3")
        world.storage.opened = lambda spec, secret: (
            FakeStorage(world.fault, down="403") if spec.storage.secret_name else None
        )
        return {"storage": {"secretName": "s3"}}

    recovered(wrong)


def test_a_secret_that_was_replaced_by_one_of_another_name() -> None:
    async def scenario(world: World) -> None:
        world.secret("s3-2025")
        await deployed(world, with_secret("s3-2025"))
        world.cluster.remove("Secret", "default", "s3-2025")
        world.secret("s3-2026")
        world.edit(storage={"secretName": "s3-2026"})
        await world.until(lambda: running(world, generation=2))
        assert operations(world) == ["Upgrade", "Deploy"]

    play(scenario)


def test_a_store_that_has_nothing_of_the_job_proves_nothing() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        empty, away = FakeStorage(world.fault), FakeStorage(world.fault, down="connection refused")
        world.storage.opened = lambda spec, secret: empty if "s3.endpoint" in spec.configuration else away
        world.edit(configuration=ELSEWHERE)
        await world.until(lambda: stalled(world, "StorageUnavailable", "connection refused; and with the settings of"))
        assert "has nothing of the job that runs" in world.condition("Stalled")["message"]
        assert world.condition("Running")["status"] == "True"
        world.storage.opened = lambda spec, secret: None
        await world.until(lambda: running(world, generation=2))

    play(scenario)


def test_what_a_new_spec_names_is_looked_for_where_it_says() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        with_foreign_savepoint(world)
        where(world, FakeStorage(world.fault), edited=True)
        world.edit(configuration=ELSEWHERE, job={"initialSavepointPath": FOREIGN, "savepointRedeployNonce": 1})
        await world.until(lambda: stalled(world, "SavepointInvalid", f"{FOREIGN} cannot be restored from"))
        assert world.condition("Running")["status"] == "True"

    play(scenario)
