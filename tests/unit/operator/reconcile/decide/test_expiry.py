"""A FlinkJob with a TTL is deleted after its job has read all input.

No other FlinkJob is, and none that needs a person.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.engine import FakeEngineClient
from tests.unit.operator.world.kubernetes.cluster import FakeCluster
from tests.unit.operator.world.scenarios.scenario import deployed, gone, played, running, stalled
from tests.unit.operator.world.world import NAME


def manifest_of(ttl: str | None) -> dict[str, object]:
    manifest = flinkjob()
    manifest["spec"]["deletion"] = {"ttlAfterFinished": ttl} if ttl else {}
    return manifest


def finished(world: World) -> bool:
    return not gone(world) and world.status().get("phase") == "Finished"


def test_a_finished_job_is_deleted_when_its_time_is_over() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(ends_at=300)
        world.apply(manifest_of("10m"))
        await world.until(lambda: finished(world))
        await world.run(540, pace=5)
        assert finished(world)
        await world.until(lambda: gone(world), within=180)
        (text,) = [text for reason, text in world.events() if reason == "Expired"]
        assert "ended 10m ago" in text
        assert list(world.sink.ends.values()) == [300], "all of it was committed"

    played(scenario)


@pytest.mark.parametrize("ttl", [None, "1h"])
def test_a_finished_job_is_kept_until_then(ttl: str | None) -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(ends_at=300)
        world.apply(manifest_of(ttl))
        await world.until(lambda: finished(world))
        await world.run(1800, pace=5)
        assert finished(world)

    played(scenario)


def test_a_failed_suspended_or_running_job_has_not_finished() -> None:
    async def scenario(world: World) -> None:
        manifest = manifest_of("1s")
        manifest["spec"]["recovery"] = {"maxRestarts": 0}  # type: ignore[index]
        await deployed(world, manifest)
        await world.run(120)
        assert running(world)
        world.edit(job={"state": "suspended"})
        await world.until(lambda: world.status().get("phase") == "Suspended" and world.settled())
        await world.run(120)
        assert not gone(world)
        world.images["job:2"] = Image(fails_after=200)
        world.edit(job={"state": "running"}, image="job:2")
        await world.until(lambda: stalled(world, "RestartsExhausted", ""), within=600)
        await world.run(120)
        assert not gone(world)

    played(scenario)


def test_a_finished_job_that_is_edited_runs_again() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(ends_at=300)
        world.apply(manifest_of("10m"))
        await world.until(lambda: finished(world))
        world.images["job:2"] = Image()
        world.edit(image="job:2")
        await world.until(lambda: running(world))
        await world.run(900, pace=5)
        assert running(world)

    played(scenario)


def test_a_job_that_a_person_stopped_with_a_savepoint_is_kept() -> None:
    async def scenario(world: World) -> None:
        world.apply(manifest_of("10m"))
        await world.until(lambda: running(world))
        await world.run(30)
        job = world.leading(NAME)
        assert job is not None
        job.ask("stop", "5" * 32, "s3://bucket/by-hand")
        await world.until(lambda: finished(world))
        await world.run(1200, pace=5)
        assert finished(world)
        assert "it was stopped" in dict(world.events())["Finished"]

    played(scenario)


def test_a_job_whose_engine_does_not_report_why_it_has_finished_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    overview = FakeEngineClient.overview

    async def of_an_earlier_version(self: FakeEngineClient, job_id: str) -> Any:
        await overview(self, job_id)

    monkeypatch.setattr(FakeEngineClient, "overview", of_an_earlier_version)

    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(ends_at=300)
        world.apply(manifest_of("10m"))
        await world.until(lambda: finished(world))
        await world.run(1200, pace=5)
        assert finished(world)

    played(scenario)


def test_an_edit_at_the_end_of_its_time_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    create, done = FakeCluster.create, list[int]()

    async def scenario(world: World) -> None:
        world.images["job:1"], world.images["job:2"] = Image(ends_at=300), Image()
        world.apply(manifest_of("10m"))
        await world.until(lambda: finished(world))

        async def change(self: FakeCluster, manifest: dict[str, Any]) -> dict[str, Any]:
            if manifest.get("reason") == "Expired" and not done:
                done.append(1)
                world.edit(image="job:2")
            return await create(self, manifest)

        monkeypatch.setattr(FakeCluster, "create", change)
        await world.until(lambda: bool(done), within=900)
        await world.until(lambda: running(world))

    played(scenario)


def test_an_edit_between_the_last_read_and_the_deletion_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    delete, done = FakeCluster.delete, list[int]()

    async def scenario(world: World) -> None:
        world.images["job:1"], world.images["job:2"] = Image(ends_at=300), Image()
        world.apply(manifest_of("10m"))
        await world.until(lambda: finished(world))

        async def change(self: FakeCluster, kind: Any, namespace: str, name: str, **options: Any) -> None:
            if kind.name == "FlinkJob" and not done:
                done.append(1)
                world.edit(image="job:2")
            await delete(self, kind, namespace, name, **options)

        monkeypatch.setattr(FakeCluster, "delete", change)
        await world.until(lambda: bool(done), within=900)
        await world.until(lambda: running(world))

    played(scenario)


def test_a_rejected_edit_is_not_deleted_with_its_error() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"], world.images["job:2"] = Image(ends_at=300), Image(check_crashes=True)
        world.apply(manifest_of("10m"))
        await world.until(lambda: finished(world))
        world.edit(image="job:2")
        await world.until(lambda: stalled(world, "CheckCrashed", ""))
        await world.run(900, pace=5)
        assert stalled(world, "CheckCrashed", "")

    played(scenario)


def test_a_finished_job_that_must_be_suspended_is_kept() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(ends_at=300)
        world.apply(manifest_of("10m"))
        await world.until(lambda: finished(world))
        world.edit(job={"state": "suspended"})
        await world.run(1200, pace=5)
        assert not gone(world)

    played(scenario)


@pytest.mark.parametrize("by_hand", [True, False])
def test_the_savepoint_of_a_finished_job_is_not_mentioned(by_hand: bool) -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(ends_at=300)
        manifest = manifest_of(None if by_hand else "10m")
        manifest["spec"]["deletion"] |= {"savepoint": True}  # type: ignore[index]
        world.apply(manifest)
        await world.until(lambda: finished(world))
        if by_hand:
            world.delete()
        await world.until(lambda: gone(world), within=900)
        assert "DeletedWithoutSavepoint" not in dict(world.events())

    played(scenario)
