"""Every savepoint that the operator requests has a FlinkSnapshot.

A deleted FlinkJob reports its remaining snapshots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.operator.world import Image, World, engine, flinksnapshot
from tests.unit.operator.world.scenarios.scenario import deployed, gone, played, running, spec, suspended
from tests.unit.operator.world.storage import Stored

if TYPE_CHECKING:
    from penstock_operator.reconcile.job_loop import Transition


def recorded(world: World) -> set[str | None]:
    """Return the paths of the savepoints that have a FlinkSnapshot."""
    return {status.get("path") for status in world.snapshots().values() if status.get("state") == "Completed"}


def step(world: World) -> str:
    return str((world.status().get("operation") or {}).get("step", ""))


def reported(world: World, reason: str) -> list[str]:
    return [message for found, message in world.events() if found == reason]


def test_the_savepoint_of_an_upgrade_is_recorded_before_the_upgrade_ends() -> None:
    async def scenario(world: World) -> None:
        await deployed(world, spec(rollback={"after": "2m"}))
        world.images["job:2"] = Image(checkpoints=False)
        world.edit(image="job:2")
        await world.until(lambda: step(world) == "Watch")
        await world.run(10)
        assert step(world) == "Watch"
        assert recorded(world) == set(world.savepoints)
        await world.until(lambda: world.stalled() and "operation" not in world.status())
        assert recorded(world) == set(world.savepoints), "rolled back"
        assert "requestedSavepoints" not in {k for k, v in world.status().items() if v}

    played(scenario)


def test_the_savepoint_of_a_suspension_has_its_name() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.edit(job={"state": "suspended"})
        await world.until(lambda: suspended(world))
        await world.run(5)
        assert recorded(world) == set(world.savepoints)
        assert [name.rsplit("-", 1)[0] for name in world.snapshots()] == ["weather-suspend"]
        assert world.status()["lastSavepoint"]["snapshot"] in world.snapshots()

    played(scenario)


def test_each_of_two_consecutive_upgrades_is_recorded() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.edit(image="job:2")
        await world.until(lambda: step(world) == "Teardown")
        world.edit(image="job:3")
        await world.until(lambda: running(world, image="job:3"))
        await world.run(10)
        assert len(world.savepoints) == 2
        assert recorded(world) == set(world.savepoints)

    played(scenario)


def test_a_deletion_records_its_savepoint_and_reports_remaining_snapshots() -> None:
    async def scenario(world: World) -> None:
        await deployed(world, spec(deletion={"savepoint": True}))
        job_id = world.status()["jobId"]
        world.delete()
        await world.until(lambda: gone(world))
        (path,), (name,) = world.savepoints, world.snapshots()
        assert recorded(world) == {path}, "verified, with no FlinkJob any more"
        (text,) = reported(world, "Deleted")
        for words in (path, name, f"checkpoints/{job_id}", "latest-of-name"):
            assert words in text
        await world.run(5)
        world.cluster.remove("FlinkSnapshot", "default", name)
        await world.until(lambda: not world.snapshots())
        assert path not in world.storage.found, "with the settings that were noted"

    played(scenario)


@pytest.mark.parametrize("storage", ["Retain", "Delete"])
def test_a_deletion_without_a_savepoint_reports_whether_checkpoints_remain(storage: str) -> None:
    async def scenario(world: World) -> None:
        await deployed(world, spec(deletion={"storage": storage}))
        job_id = world.status()["jobId"]
        world.delete()
        await world.until(lambda: gone(world))
        (text,) = reported(world, "Deleted")
        assert (job_id in text) == (storage == "Retain")
        assert ("no data is left" in text) == (storage == "Delete")

    played(scenario)


def test_a_deleted_suspended_flinkjob_names_its_savepoint() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.edit(job={"state": "suspended"})
        await world.until(lambda: suspended(world))
        world.delete()
        await world.until(lambda: gone(world))
        assert world.savepoints[0] in reported(world, "Deleted")[0]
        assert recorded(world) == set(world.savepoints)

    played(scenario)


def test_a_savepoint_that_completes_after_its_timeout_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        await deployed(world, spec(upgrade={"savepointTimeout": "30s"}))
        monkeypatch.setattr(engine, "ACTION_TIME", 35.0)
        world.edit(image="job:2")
        await world.until(lambda: reported(world, "SavepointTimeout") != [])
        await world.until(lambda: running(world, image="job:2"))
        await world.run(70)
        assert world.savepoints
        assert recorded(world) == set(world.savepoints), world.describe()
        await world.run(120)
        assert not world.status().get("requestedSavepoints")

    played(scenario)


def test_a_savepoint_that_completes_while_the_job_keeps_running_is_recorded() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(savepoints=False)
        await deployed(world)
        world.edit(job={"state": "suspended"})
        await world.until(lambda: reported(world, "SavepointFailed") != [])
        folder = world.status()["operation"]["targetDirectory"]
        world.edit(job={"state": "running"})
        await world.until(lambda: running(world))
        path = late(world, folder)
        await world.run(80)
        assert recorded(world) == {path}
        assert path in reported(world, "SavepointLate")[0]

    played(scenario)


def test_a_deletion_that_timed_out_searches_again() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(savepoints=False)
        await deployed(world, spec(deletion={"savepoint": True, "timeout": "40s"}))
        newest = world.storage.of_job(world.status()["jobId"])[-1]
        late: set[str] = set()

        def comes_with_the_end_of_the_pods(transition: Transition) -> None:
            op = transition.after.operation
            if op is not None and op.step == "Teardown" and not late:
                late.add(f"{op.target_directory or folders[-1]}/savepoint-abcdef-0123456789ab")
                for path in late:
                    world.storage.put(Stored(path, newest.id, newest.job_id, newest.position, newest.time))
            folders.extend([op.target_directory] if op is not None and op.target_directory else [])

        folders: list[str] = []
        world.watch = comes_with_the_end_of_the_pods
        world.delete()
        await world.until(lambda: gone(world))
        assert reported(world, "DeletedWithoutSavepoint")
        assert recorded(world) == late
        assert all(path in reported(world, "Deleted")[0] for path in late)

    played(scenario)


def test_flinksnapshots_that_cannot_be_created_delay_nothing_and_lose_no_name() -> None:
    async def scenario(world: World) -> None:
        await deployed(world, spec(deletion={"savepoint": True}))
        world.cluster.denied["FlinkSnapshot"] = "the webhook does not answer"
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"), within=120)
        assert not world.snapshots()
        world.cluster.denied.clear()
        await world.run(30)
        assert recorded(world) == set(world.savepoints)
        world.cluster.denied["FlinkSnapshot"] = "the webhook does not answer"
        world.delete()
        await world.until(lambda: gone(world), within=120)
        text = reported(world, "Deleted")[0]
        assert world.savepoints[-1] in text
        assert "no FlinkSnapshot could be created" in text

    played(scenario)


def test_a_flinksnapshot_adopts_the_late_savepoint_of_its_last_attempt() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(savepoints=False)
        await deployed(world)
        world.apply(flinksnapshot("one"))
        await world.until(lambda: world.snapshots().get("one", {}).get("failures", 0) == 1)
        path = late(world, world.snapshots()["one"]["targetDirectory"])
        await world.until(lambda: world.snapshots()["one"].get("state") == "Completed")
        assert world.snapshots()["one"]["path"] == path
        assert world.savepoints == []

    played(scenario)


def late(world: World, folder: str) -> str:
    """Complete a savepoint in the folder of an attempt that has timed out, and return its path."""
    newest = world.storage.of_job(world.status()["jobId"])[-1]
    path = f"{folder}/savepoint-abcdef-0123456789ab"
    world.storage.put(Stored(path, newest.id, newest.job_id, newest.position, newest.time))
    return path


async def tried_three_times(world: World, **spec: Any) -> list[str]:
    """Create a FlinkSnapshot whose attempts have all failed, and return their folders."""
    world.images["job:1"] = Image(savepoints=False)
    await deployed(world)
    world.apply(flinksnapshot("one", **spec))
    await world.until(lambda: world.snapshots().get("one", {}).get("failures", 0) == 3)
    status = world.snapshots()["one"]
    folders = [*status["formerDirectories"], status["targetDirectory"]]
    assert len(set(folders)) == 3
    return folders


def test_late_savepoints_of_two_attempts_are_deleted_with_their_flinksnapshot() -> None:
    async def scenario(world: World) -> None:
        first, second, third = await tried_three_times(world)
        paths = {late(world, first), late(world, third)}
        await world.until(lambda: world.snapshots()["one"].get("state") == "Completed")
        assert world.snapshots()["one"]["path"] in paths
        paths.add(late(world, second))
        world.cluster.remove("FlinkSnapshot", "default", "one")
        await world.until(lambda: not world.snapshots())
        assert paths.isdisjoint(world.storage.found)
        assert set(world.storage.disposed) == paths

    played(scenario)


def test_a_failed_flinksnapshot_deletes_its_late_savepoint_unless_a_restore_needs_it() -> None:
    async def scenario(world: World) -> None:
        first, _, third = await tried_three_times(world, backoffLimit=2)
        assert world.snapshots()["one"]["state"] == "Failed"
        needed, spare = late(world, first), late(world, third)
        world.edit(job={"state": "suspended", "initialSavepointPath": needed, "savepointRedeployNonce": 1})
        world.cluster.remove("FlinkSnapshot", "default", "one")
        await world.run(120)
        assert {needed, spare} <= world.storage.found.keys()
        assert "may need it" in world.snapshots()["one"]["message"]
        world.edit(job={"initialSavepointPath": None, "savepointRedeployNonce": None})
        await world.until(lambda: not world.snapshots())
        assert {needed, spare}.isdisjoint(world.storage.found)

    played(scenario)


def test_silent_storage_is_queried_again_for_late_savepoints() -> None:
    async def scenario(world: World) -> None:
        first, _, _ = await tried_three_times(world, backoffLimit=2)
        path = late(world, first)
        world.storage.down = "503 SlowDown"
        world.cluster.remove("FlinkSnapshot", "default", "one")
        await world.run(120)
        assert "503 SlowDown" in world.snapshots()["one"]["message"]
        world.storage.down = ""
        await world.until(lambda: not world.snapshots())
        assert path not in world.storage.found

    played(scenario)


def test_silent_storage_does_not_keep_a_flinksnapshot_forever() -> None:
    async def scenario(world: World) -> None:
        await tried_three_times(world, backoffLimit=2)
        world.storage.down = "503 SlowDown"
        world.cluster.remove("FlinkSnapshot", "default", "one")
        await world.until(lambda: not world.snapshots(), within=2000, pace=5)
        assert "503 SlowDown" in reported(world, "FilesKept")[0]

    played(scenario)
