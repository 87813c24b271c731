"""Deletion and a new FlinkJob of the same name: remaining state in storage is reported or restored, never silently ignored."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.api.validation import parse_spec
from penstock_operator.reconcile.decide.restore.predecessor import newest_snapshot
from penstock_operator.storage.concurrency import AT_ONCE
from penstock_operator.storage.snapshots import StoredSnapshot
from tests.unit.operator.contexts import ago
from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.scenarios.scenario import gone, played, running
from tests.unit.operator.world.storage import Stored
from tests.unit.operator.world.world import NAME, START

if TYPE_CHECKING:
    from collections.abc import Callable

LATEST = "latest-of-name"


def job(start_from: str | None = None, *, savepoint: bool = False, **fields: Any) -> dict[str, Any]:
    manifest = flinkjob(**({"startFrom": start_from} if start_from else {}), **fields)
    manifest["spec"]["deletion"] = {"savepoint": savepoint}
    return manifest


async def left_behind(world: World, *, savepoint: bool = False) -> str:
    """Run and delete a job, and return the path of the newest snapshot that remains."""
    world.apply(job(savepoint=savepoint))
    await world.until(lambda: running(world))
    await world.run(35)
    world.delete()
    await world.until(lambda: gone(world))
    await world.run(5)
    newest = max(world.storage.found.values(), key=lambda s: (s.id, "/savepoint-" in s.path))
    assert ("/savepoint-" in newest.path) == savepoint
    for event in world.cluster.select("Event", None, {}):
        world.cluster.drop("Event", event["metadata"]["namespace"], event["metadata"]["name"])
    return newest.path


def reported(world: World, reason: str) -> list[str]:
    return [message for found, message in world.events() if found == reason]


def started_from(world: World) -> str | None:
    path: str | None = world.status()["running"]["restoredFrom"].get("path")
    return path


@pytest.mark.parametrize("savepoint", [True, False], ids=["savepoint", "checkpoint"])
def test_remaining_state_is_named_in_event_and_condition(savepoint: bool) -> None:
    async def scenario(world: World) -> None:
        path = await left_behind(world, savepoint=savepoint)
        world.apply(job())
        await world.until(lambda: running(world))
        (text,) = reported(world, "StateLeft")
        for words in (text, world.condition("Ready")["message"]):
            assert path in words
            assert "2026-01-01 12:" in words
            assert "job.initialSavepointPath" in words
            assert "job.startFrom" in words
        assert started_from(world) is None
        assert world.status()["running"]["restoredFrom"]["passedOver"]["path"] == path
        await world.run(120)
        assert len(reported(world, "StateLeft")) == 1
        world.edit(job={"initialSavepointPath": path, "savepointRedeployNonce": 1})
        await world.until(lambda: running(world) and started_from(world) == path)
        assert path not in world.condition("Ready")["message"]

    played(scenario, may_repeat=True)


@pytest.mark.parametrize("options", [{"startFrom": "empty"}, {"upgradeMode": "stateless"}])
def test_a_requested_empty_start_is_no_reason_for_a_warning(options: dict[str, str]) -> None:
    async def scenario(world: World) -> None:
        await left_behind(world)
        before = world.storage.listings
        world.apply(job(**options))  # type: ignore[arg-type]
        await world.until(lambda: running(world))
        assert not reported(world, "StateLeft")
        assert world.storage.listings == before
        assert len(world.sink.empty_starts) == 2

    played(scenario, may_repeat=True)


def test_a_name_without_remaining_state_starts_without_a_warning() -> None:
    async def scenario(world: World) -> None:
        world.apply(flinkjob("weather-2"))
        await world.until(lambda: running_of(world, "weather-2"))
        await world.run(30)
        world.apply(flinkjob())
        world.apply(flinkjob("weath", startFrom=LATEST))
        await world.until(lambda: running(world) and running_of(world, "weath"))
        assert not reported(world, "StateLeft")
        assert len(world.sink.empty_starts) == 3

    played(scenario, may_repeat=True)


def running_of(world: World, name: str) -> bool:
    return world.settled(name) and world.status(name)["phase"] == "Running"


@pytest.mark.parametrize("savepoint", [True, False], ids=["savepoint", "checkpoint"])
def test_latest_of_name_continues_exactly_once(savepoint: bool) -> None:
    async def scenario(world: World) -> None:
        path = await left_behind(world, savepoint=savepoint)
        former = world.storage.found[path].job_id
        leaders = dict(world.storage.leaders)
        world.apply(job(LATEST))
        await world.until(lambda: running(world))
        assert started_from(world) == path
        assert world.storage.leaders[former] > leaders[former], "it was fenced off"
        await world.run(90)
        assert not world.storage.of_job(former), "its checkpoints go like those of any incarnation that is over"
        assert (path in world.storage.found) == savepoint, "a savepoint stays"
        assert not world.sink.repeated
        assert len(world.sink.empty_starts) == 1
        assert not reported(world, "StateLeft")

    played(scenario, may_repeat=True)


def deleting_storage(*, savepoint: bool = False) -> dict[str, Any]:
    manifest = job(LATEST)
    manifest["spec"]["deletion"] = {"savepoint": savepoint, "storage": "Delete"}
    return manifest


def edited(world: World) -> None:
    world.images["job:2"] = Image(checkpoints=False)
    world.edit(image="job:2", job={"upgradeMode": "last-state"})


def suspended_with_its_checkpoint(world: World) -> None:
    world.edit(job={"state": "suspended", "upgradeMode": "last-state"})


@pytest.mark.parametrize("change", [None, edited, suspended_with_its_checkpoint], ids=["at once", "edit", "suspend"])
def test_deletion_keeps_inherited_state_that_the_job_has_not_advanced(
    change: Callable[[World], None] | None,
) -> None:
    async def scenario(world: World) -> None:
        path = await left_behind(world)
        world.images["job:1"] = Image(checkpoints=False)
        world.apply(deleting_storage())
        await world.until(lambda: (world.status().get("operation") or {}).get("step") == "Watch")
        await world.run(10)
        if change is not None:
            change(world)
            await world.run(120)
        world.delete()
        await world.until(lambda: gone(world))
        assert path in world.storage.found, "all that is left of the name"
        (text,) = reported(world, "Deleted")
        assert path.rpartition("/")[0] in text
        world.images.clear()
        world.apply(job(LATEST))
        await world.until(lambda: running(world))
        assert started_from(world) == path

    played(scenario, may_repeat=True)


@pytest.mark.parametrize("savepoint", [False, True], ids=["checkpoint", "savepoint"])
def test_deletion_removes_inherited_state_once_the_job_has_its_own(savepoint: bool) -> None:
    async def scenario(world: World) -> None:
        path = await left_behind(world)
        former = world.storage.found[path].job_id
        if savepoint:
            world.images["job:1"] = Image(checkpoints=False)
        world.storage.disposable = False
        world.apply(deleting_storage(savepoint=savepoint))
        if savepoint:
            await world.until(lambda: world.status().get("jobState") == "RUNNING")
        else:
            await world.until(lambda: running(world))
            await world.run(5)
        assert world.storage.of_job(former), "nothing has removed them yet"
        world.storage.disposable = True
        world.delete()
        await world.until(lambda: gone(world))
        assert not world.storage.of_job(former)
        assert [s.path for s in world.storage.found.values() if "/savepoint-" not in s.path] == []
        assert bool(world.savepoints) == savepoint

    played(scenario, may_repeat=True)


def test_latest_of_name_fences_an_unseen_master_before_it_reads() -> None:
    async def scenario(world: World) -> None:
        world.apply(job())
        await world.until(lambda: running(world))
        await world.run(35)
        (pod,) = world.cluster.select("Pod", None, {"penstock.dev/role": "master"})
        uid = pod["metadata"]["uid"]
        lost = world.jobs[uid]
        world.delete()
        await world.until(lambda: gone(world))
        await world.run(5)
        worker = world.slots
        world.slots = lambda name, job_id: 2 if job_id == lost.job_id else worker(name, job_id)  # type: ignore[method-assign]
        lost.state, world.jobs[uid] = "RUNNING", lost
        world.zombies.add(uid)
        await world.run(25)
        world.apply(job(LATEST))
        await world.until(lambda: world.status().get("phase") == "Running" and running(world))
        assert lost.state == "SUSPENDED"
        assert started_from(world) is not None
        world.two_masters.clear()
        await world.run(60)
        assert not world.sink.repeated, world.describe()

    played(scenario, may_repeat=True)


def test_latest_of_name_fences_many_masters_together() -> None:
    async def scenario(world: World) -> None:
        path = await left_behind(world)
        prefix = world.storage.found[path].job_id[:12]
        older = [prefix + f"{number:020x}" for number in range(40)]
        world.storage.leaders |= dict.fromkeys(older, 1)
        at_once, most, fence = 0, 0, world.storage.fence

        async def slow(root: str, job_id: str) -> None:
            nonlocal at_once, most
            at_once, most = at_once + 1, max(most, at_once + 1)
            await asyncio.sleep(0)
            await fence(root, job_id)
            at_once -= 1

        world.storage.fence = slow  # type: ignore[method-assign]
        world.apply(job(LATEST))
        await world.until(lambda: running(world))
        assert all(world.storage.leaders[job_id] > 1 for job_id in older)
        assert 1 < most <= AT_ONCE

    played(scenario, may_repeat=True)


def test_latest_of_name_waits_for_storage() -> None:
    async def scenario(world: World) -> None:
        path = await left_behind(world)
        world.storage.down = "connection refused"
        world.apply(job(LATEST))
        await world.until(world.stalled)
        assert world.condition("Stalled")["reason"] == "StorageUnavailable"
        await world.run(300, pace=5)
        assert world.status()["operation"]["step"] == "Verify"
        world.storage.down = ""
        await world.until(lambda: running(world))
        assert started_from(world) == path

    played(scenario, may_repeat=True)


def test_latest_of_name_never_uses_a_torn_snapshot_and_reports_it() -> None:
    async def scenario(world: World) -> None:
        path = await left_behind(world)
        world.storage.torn.add(path)
        world.apply(job(LATEST))
        await world.until(world.stalled)
        stalled = world.condition("Stalled")
        assert (stalled["reason"], path in stalled["message"]) == ("StateLost", True)
        assert "job.startFrom" in stalled["message"]
        await world.run(60)
        assert not world.jobs
        world.storage.torn.clear()
        await world.until(lambda: running(world))
        assert started_from(world) == path

    played(scenario, may_repeat=True)


@pytest.mark.parametrize("change", [{"startFrom": "empty"}, {"initialSavepointPath": "older"}])
def test_a_person_then_decides_by_an_edit(change: dict[str, str]) -> None:
    async def scenario(world: World) -> None:
        path = await left_behind(world)
        older = next(p for p in world.storage.found if p != path)
        world.storage.torn.add(path)
        world.apply(job(LATEST))
        await world.until(world.stalled)
        world.edit(job={key: older if value == "older" else value for key, value in change.items()})
        await world.until(lambda: running(world))
        assert started_from(world) == (older if "initialSavepointPath" in change else None)

    played(scenario, may_repeat=True)


def test_a_default_start_during_a_storage_outage_is_warned_about_as_soon_as_storage_answers() -> None:
    async def scenario(world: World) -> None:
        path = await left_behind(world)
        world.storage.down = "connection refused"
        world.images["job:1"] = Image(checkpoints=False)
        world.apply(job())
        await world.until(lambda: (world.status().get("operation") or {}).get("step") == "Watch")
        await world.run(10)
        assert not reported(world, "StateLeft")
        world.storage.down = ""
        await world.until(lambda: reported(world, "StateLeft") != [])
        assert path in reported(world, "StateLeft")[0]
        assert world.status()["running"]["restoredFrom"]["passedOver"]["path"] == path

    played(scenario, may_repeat=True)


def test_an_unanswered_check_is_reported_at_its_deadline() -> None:
    async def scenario(world: World) -> None:
        await left_behind(world)
        world.storage.down = "connection refused"
        world.apply(job())
        await world.until(lambda: running(world))
        assert "connection refused" in reported(world, "StateUnknown")[0]

    played(scenario, may_repeat=True)


def test_a_named_savepoint_older_than_the_remaining_state_is_warned_about() -> None:
    async def scenario(world: World) -> None:
        path = await left_behind(world)
        first = "s3://bucket/elsewhere/savepoint-abcdef-0123456789ab"
        world.storage.put(Stored(first, 7, "f" * 32, 10, START))
        world.apply(job(initialSavepointPath=first))
        await world.until(lambda: running(world))
        assert started_from(world) == first
        (text,) = reported(world, "StateLeft")
        assert path in text
        assert "newer" in text

    played(scenario, may_repeat=True)


def test_latest_of_name_finds_a_savepoint_in_another_folder_by_its_flinksnapshot() -> None:
    async def scenario(world: World) -> None:
        world.apply(job())
        await world.until(lambda: running(world))
        await world.run(25)
        world.edit(job={"savepointTriggerNonce": 1})
        await world.until(lambda: any(s.get("state") == "Completed" for s in world.snapshots().values()))
        (path,) = world.savepoints
        world.delete()
        await world.until(lambda: gone(world))
        stored = {p: s for p, s in world.storage.found.items() if p == path}
        world.storage.found, world.storage.leaders = stored, {}
        moved = job(LATEST)
        moved["spec"]["storage"] = {"checkpoints": "s3://bucket/checkpoints", "savepoints": "s3://bucket/moved"}
        world.apply(moved)
        await world.until(lambda: running(world))
        assert started_from(world) == path

    played(scenario, may_repeat=True)


def test_the_error_of_a_program_that_does_not_accept_the_state_names_the_field() -> None:
    async def scenario(world: World) -> None:
        await left_behind(world)
        problem = {"code": "RESTORE_REFUSED", "message": "uid 'new' has no operator", "remedy": ""}
        world.images["job:1"] = Image(check={"ok": False, "problems": [problem]})
        world.apply(job(LATEST))
        await world.until(world.stalled)
        assert world.condition("Stalled")["message"].startswith("spec.job.startFrom: ")
        world.images.clear()
        world.edit(job={"startFrom": "empty"})
        await world.until(lambda: running(world))

    played(scenario, may_repeat=True)


def stored(path: str, number: int | None, job_id: str | None, seconds: float | None, torn: str = "") -> StoredSnapshot:
    return StoredSnapshot(path, number, job_id, None if seconds is None else ago(seconds), torn=torn)


@pytest.mark.parametrize(
    ("snapshots", "expected"),
    [
        ([], None),
        ([stored("a/chk-3", 3, "a", 50), stored("b/chk-1", 1, "b", 10)], "b/chk-1"),
        ([stored("a/chk-3", 3, "a", 50), stored("x/savepoint-2", 2, "a", 10)], "a/chk-3"),
        ([stored("a/chk-3", 3, "a", 50), stored("x/savepoint-3", 3, "a", 50)], "x/savepoint-3"),
        ([stored("a/chk-3", 3, "a", 50, "torn"), stored("x/savepoint-3", 3, "a", 50)], "x/savepoint-3"),
        ([stored("a/chk-3", 3, "a", 50, "torn"), stored("x/savepoint-2", 2, "a", 60)], "a/chk-3"),
        ([stored("a/chk-3", 3, "a", 50, "torn"), stored("b/chk-1", 1, "b", 10)], "b/chk-1"),
        ([stored("a/chk-3", 3, "a", None, "torn"), stored("b/chk-1", 1, "b", 10)], "a/chk-3"),
        ([stored("x/savepoint-9", None, None, 5), stored("b/chk-1", 1, "b", 10)], "x/savepoint-9"),
    ],
)
def test_the_newest_snapshot_of_a_name_is_found(snapshots: list[StoredSnapshot], expected: str | None) -> None:
    for order in (snapshots, snapshots[::-1]):
        found = newest_snapshot(order)
        assert (found.path if found else None) == expected


def test_only_known_values_are_accepted() -> None:
    with pytest.raises(Exception, match=r"startFrom"):
        parse_spec(flinkjob(startFrom="latest")["spec"])
    assert parse_spec(flinkjob(NAME, startFrom=LATEST)["spec"]).job.start_from == LATEST
