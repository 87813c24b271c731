"""FlinkSnapshots: created manually, by nonce, by schedule or after an upgrade; retry, verification, disposal, retention."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.snapshot.loop import SnapshotLoop
from tests.unit.operator.world import Fault, Image, World, flinkjob, flinksnapshot
from tests.unit.operator.world.scenarios.scenario import FOREIGN, running, with_foreign_savepoint

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def run(scenario: Callable[[World], Coroutine[Any, Any, None]], world: World | None = None) -> None:
    asyncio.run(scenario(world or World()))


async def started(world: World, **snapshots: Any) -> None:
    manifest = flinkjob()
    manifest["spec"]["snapshots"] = snapshots
    world.apply(manifest)
    await world.until(lambda: running(world))


def state(world: World, name: str) -> str:
    return str(world.snapshots().get(name, {}).get("state"))


def test_a_manual_savepoint_is_taken_and_verified() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        world.apply(flinksnapshot("before-release"))
        await world.until(lambda: state(world, "before-release") == "Completed")
        status = world.snapshots()["before-release"]
        assert status["path"] == world.savepoints[0]
        assert status["checkpointId"] > 0
        labels = world.cluster.one("FlinkSnapshot", "before-release")["metadata"]["labels"]  # type: ignore[index]
        assert labels["penstock.dev/job"] == "weather"
        assert labels["penstock.dev/trigger"] == "manual"

    run(scenario)


def test_a_manual_checkpoint_is_taken() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        world.apply(flinksnapshot("now", checkpoint={}))
        await world.until(lambda: state(world, "now") == "Completed")
        assert "/chk-" in world.snapshots()["now"]["path"]

    run(scenario)


def test_a_snapshot_waits_for_a_job_that_is_not_running() -> None:
    async def scenario(world: World) -> None:
        world.apply(flinksnapshot("early"))
        await world.run(10)
        assert state(world, "early") == "Pending"
        assert "does not exist" in world.snapshots()["early"]["message"]
        await started(world)
        await world.until(lambda: state(world, "early") == "Completed")

    run(scenario)


def test_failures_are_retried_with_growing_pauses_up_to_a_limit() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(savepoints=False)
        await started(world)
        world.apply(flinksnapshot("hopeless", backoffLimit=2))
        await world.until(lambda: state(world, "hopeless") == "Failed")
        status = world.snapshots()["hopeless"]
        assert status["failures"] == 3
        assert "AccessDenied" in status["message"]
        assert [r for r, _ in world.events()].count("SnapshotFailed") == 3

    run(scenario)


def test_a_retry_can_succeed() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(savepoints=False)
        await started(world)
        world.apply(flinksnapshot("second-try"))
        await world.until(lambda: world.snapshots().get("second-try", {}).get("failures") == 1)
        job = world.leading("weather")
        assert job is not None
        job.image = Image()
        await world.until(lambda: state(world, "second-try") == "Completed")
        assert len(world.savepoints) == 1

    run(scenario)


def test_an_existing_savepoint_is_verified_and_never_disposed_of() -> None:
    async def scenario(world: World) -> None:
        with_foreign_savepoint(world)
        await started(world)
        world.apply(flinksnapshot("known", savepoint={"path": FOREIGN, "disposeOnDelete": True}))
        await world.until(lambda: state(world, "known") == "Completed")
        world.cluster.remove("FlinkSnapshot", "default", "known")
        await world.until(lambda: "known" not in world.snapshots())
        assert FOREIGN in world.storage.found

    run(scenario)


def test_a_missing_savepoint_fails_with_its_path() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        world.apply(flinksnapshot("wrong", savepoint={"path": "s3://bucket/nowhere"}))
        await world.until(lambda: state(world, "wrong") == "Failed")
        assert "s3://bucket/nowhere" in world.snapshots()["wrong"]["message"]

    run(scenario)


def test_disposal_needs_no_running_job_and_not_even_a_flinkjob() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        world.apply(flinksnapshot("s"))
        await world.until(lambda: state(world, "s") == "Completed")
        path = world.snapshots()["s"]["path"]
        world.delete()
        await world.until(lambda: world.cluster.one("FlinkJob", "weather") is None)
        assert path in world.storage.found, "a savepoint outlives its job"
        world.cluster.remove("FlinkSnapshot", "default", "s")
        await world.until(lambda: "s" not in world.snapshots())
        assert path not in world.storage.found

    run(scenario)


def test_a_snapshot_that_a_restore_needs_is_kept_until_then() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        world.edit(job={"state": "suspended"})
        await world.until(lambda: world.settled() and world.status()["phase"] == "Suspended")
        await world.run(5)
        [name] = world.snapshots(trigger="upgrade")
        path = world.snapshots()[name]["path"]
        world.cluster.remove("FlinkSnapshot", "default", name)
        await world.run(120)
        assert path in world.storage.found
        assert "may need it" in world.snapshots()[name]["message"]
        world.edit(job={"state": "running"})
        await world.until(lambda: name not in world.snapshots())
        assert running(world)
        assert path not in world.storage.found

    run(scenario)


OTHER = "copy"


async def taken(world: World) -> str:
    """Create the FlinkSnapshot `s` and return the path of its savepoint."""
    await started(world)
    world.apply(flinksnapshot("s"))
    await world.until(lambda: state(world, "s") == "Completed")
    return str(world.snapshots()["s"]["path"])


async def kept(world: World, path: str, *, why: str = OTHER) -> None:
    """Delete the FlinkSnapshot `s`, and check that it and its files remain."""
    world.cluster.remove("FlinkSnapshot", "default", "s")
    await world.run(90)
    assert path in world.storage.found, world.describe()
    assert f"a restore of FlinkJob {why} may need it" in world.snapshots()["s"]["message"]


async def release_standby(world: World, path: str) -> None:
    await world.until(lambda: "s" not in world.snapshots())
    assert path not in world.storage.found


def test_the_origin_of_another_flinkjob_is_kept_until_that_job_runs() -> None:
    async def scenario(world: World) -> None:
        path = await taken(world)
        world.images["job:slow"] = Image(pulls=False)
        world.apply(flinkjob(OTHER, image="job:slow", initialSavepointPath=path, upgradeMode="stateless"))
        await kept(world, path)
        world.delete()
        await world.until(lambda: world.cluster.one("FlinkJob", "weather") is None)
        await world.run(60)
        assert path in world.storage.found, "the job that it is of is gone, the other one is not"
        world.images["job:slow"] = Image()
        await world.until(lambda: world.status(OTHER).get("running", {}).get("stable") is True)
        assert world.status(OTHER)["running"]["restoredFrom"]["path"] == path
        await release_standby(world, path)
        assert world.job(OTHER)["spec"]["job"]["initialSavepointPath"] == path, "it may stay in the manifest"

    run(scenario)


def test_a_suspended_flinkjob_keeps_its_origin_and_a_deleted_one_does_not() -> None:
    async def scenario(world: World) -> None:
        path = await taken(world)
        world.apply(flinkjob(OTHER, initialSavepointPath=path, state="suspended"))
        await kept(world, path)
        world.delete(OTHER)
        await release_standby(world, path)

    run(scenario)


def test_the_rollback_target_of_another_flinkjob_is_kept() -> None:
    async def scenario(world: World) -> None:
        path = await taken(world)
        world.apply(flinkjob(OTHER, image="job:dumb", initialSavepointPath=path))
        world.images["job:dumb"] = Image(checkpoints=False)
        await world.until(lambda: "running" in world.status(OTHER))
        world.edit(OTHER, job={"initialSavepointPath": None})
        await kept(world, path)
        assert world.condition("Running", OTHER)["status"] == "True", "it runs, but has no checkpoint of its own"
        job = world.leading(OTHER)
        assert job is not None
        job.image = Image()
        await release_standby(world, path)

    run(scenario)


def test_an_invalid_manifest_keeps_its_savepoint() -> None:
    async def scenario(world: World) -> None:
        path = await taken(world)
        world.apply(flinkjob(OTHER, parallelism="many", initialSavepointPath=path))
        await kept(world, path)
        world.edit(OTHER, job={"initialSavepointPath": "s3://bucket/savepoints/another"})
        await release_standby(world, path)

    run(scenario)


def test_the_savepoint_of_a_redeploy_is_kept_until_the_redeploy_is_done() -> None:
    async def scenario(world: World) -> None:
        path = await taken(world)
        world.apply(flinkjob(OTHER, upgradeMode="stateless"))
        await world.until(lambda: world.status(OTHER).get("running", {}).get("stable") is True)
        world.images["job:slow"] = Image(pulls=False)
        world.edit(OTHER, image="job:slow", job={"initialSavepointPath": path, "savepointRedeployNonce": 1})
        await kept(world, path)
        world.images["job:slow"] = Image()
        await release_standby(world, path)
        assert world.status(OTHER)["running"]["restoredFrom"]["path"] == path

    run(scenario)


def test_a_flinkjob_of_another_namespace_blocks_no_deletion() -> None:
    """Otherwise a user could block the deletion of other users' objects."""

    async def scenario(world: World) -> None:
        path = await taken(world)
        stranger = flinkjob(OTHER, initialSavepointPath=path, state="suspended")
        stranger["metadata"]["namespace"] = "another"
        world.cluster.put(stranger)
        loop = SnapshotLoop("default", "s", world.ports)
        world.cluster.remove("FlinkSnapshot", "default", "s")
        assert await loop.reconcile() is None
        assert path not in world.storage.found

    run(scenario)


def test_each_nonce_takes_one_snapshot() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        world.edit(job={"savepointTriggerNonce": 1, "checkpointTriggerNonce": 5})
        await world.run(30)
        world.edit(job={"savepointTriggerNonce": 2})
        await world.run(30)
        kinds = [s for s in world.snapshots(trigger="nonce").values() if s["state"] == "Completed"]
        assert len(kinds) == 3
        assert len(world.savepoints) == 2

    run(scenario)


def test_nonces_of_the_first_manifest_take_no_snapshot() -> None:
    async def scenario(world: World) -> None:
        world.apply(flinkjob(savepointTriggerNonce=7, savepointRedeployNonce=3, initialSavepointPath=FOREIGN))
        with_foreign_savepoint(world)
        await world.until(lambda: running(world))
        await world.run(30)
        assert not world.snapshots(trigger="nonce")
        assert len(world.status()["history"]) == 1

    run(scenario)


def test_the_schedule_takes_savepoints_and_retention_removes_the_oldest() -> None:
    async def scenario(world: World) -> None:
        await started(world, periodic={"interval": "60s", "type": "savepoint"}, retention={"count": 3})
        await world.run(600)
        kept = [s["path"] for s in world.snapshots(trigger="periodic").values() if s["state"] == "Completed"]
        assert len(world.savepoints) in (9, 10)
        assert sorted(kept) == sorted(world.savepoints[-3:])
        assert sorted(p for p in world.storage.found if "savepoint-" in p) == sorted(kept)

    run(scenario)


def test_periodic_checkpoints_displace_no_savepoint() -> None:
    async def scenario(world: World) -> None:
        await started(world, periodic={"interval": "30s", "type": "checkpoint"}, retention={"count": 3})
        world.edit(job={"savepointTriggerNonce": 1})
        await world.until(lambda: bool(world.snapshots(trigger="nonce")))
        await world.run(300)
        [savepoint] = world.snapshots(trigger="nonce").values()
        assert savepoint["path"] in world.storage.found
        paths = [s["path"] for s in world.snapshots(trigger="periodic").values() if s["state"] == "Completed"]
        assert len(paths) <= 2, "the others name checkpoints that the engine has removed"

    run(scenario)


def test_failed_snapshots_do_not_accumulate() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(savepoints=False)
        await started(world, periodic={"interval": "30s"}, retention={"failed": 2})
        for name in [f"weather-periodic-{i}" for i in range(6)]:
            manifest = flinksnapshot(name, backoffLimit=0)
            manifest["metadata"]["labels"] = {"penstock.dev/trigger": "periodic", "penstock.dev/job": "weather"}
            world.apply(manifest)
        world.apply(flinksnapshot("by-hand", backoffLimit=0))
        await world.run(120)
        failed = [name for name, found in world.snapshots().items() if found.get("state") == "Failed"]
        assert len([name for name in failed if name != "by-hand"]) == 2
        assert "by-hand" in failed

    run(scenario)


def test_a_repeated_nonce_takes_another_savepoint() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        for number, nonce in enumerate((1, 2, 1, 2, 1), start=1):
            world.edit(job={"savepointTriggerNonce": nonce})
            await world.until(lambda number=number: len(world.savepoints) == number, within=60)
        await world.run(60)
        assert len(world.savepoints) == 5

    run(scenario)


def test_a_cron_expression_takes_savepoints_on_the_minute() -> None:
    async def scenario(world: World) -> None:
        await started(world, periodic={"cron": "*/3 * * * *"})
        await world.run(1000)
        made = world.cluster.select("FlinkSnapshot", None, {"penstock.dev/trigger": "periodic"})
        names = [m["metadata"]["name"] for m in made]
        assert names == [f"weather-periodic-2026010112{minute:02d}00" for minute in (3, 6, 9, 12, 15)]
        late = [m["metadata"]["creationTimestamp"][-3:-1] for m in made]
        assert all(int(seconds) <= 1 for seconds in late), late
        assert all(state(world, name) == "Completed" for name in names)

    run(scenario)


def test_retention_by_age_continues_during_a_suspension_and_keeps_the_newest() -> None:
    async def scenario(world: World) -> None:
        await started(world, periodic={"interval": "60s"}, retention={"count": 100, "age": "5m"})
        await world.run(200)
        assert len(world.snapshots(trigger="periodic")) >= 3
        world.edit(job={"state": "suspended"})
        await world.run(900)
        left = world.snapshots()
        assert len(left) == 1, left
        assert next(iter(left.values()))["path"] == world.status()["nextRestore"]["path"]

    run(scenario)


def test_manual_savepoints_are_never_removed_by_retention() -> None:
    async def scenario(world: World) -> None:
        await started(world, periodic={"interval": "30s"}, retention={"count": 1, "age": "1m"})
        world.apply(flinksnapshot("mine"))
        await world.run(400)
        assert state(world, "mine") == "Completed"
        assert world.snapshots()["mine"]["path"] in world.storage.found

    run(scenario)


def test_a_replaced_job_does_not_leave_a_hanging_snapshot() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        world.apply(flinksnapshot("unlucky"))
        await world.until(lambda: state(world, "unlucky") == "InProgress")
        world.cluster.remove("Deployment", "default", "weather-master")
        for pod in world.cluster.select("Pod", None, {"penstock.dev/role": "master"}):
            world.jobs.pop(pod["metadata"]["uid"], None)
            world.cluster.drop("Pod", "default", pod["metadata"]["name"])
        await world.until(lambda: state(world, "unlucky") == "Completed")

    run(scenario)


async def taken_and_removed(world: World) -> None:
    at, world.fault.at = world.fault.at, 0
    await started(world)
    world.fault.calls.clear()
    world.fault.at = at
    world.apply(flinksnapshot("s"))
    await world.until(lambda: state(world, "s") == "Completed")
    assert len(world.savepoints) == 1, world.describe()
    world.cluster.remove("FlinkSnapshot", "default", "s")
    await world.until(lambda: "s" not in world.snapshots())
    assert world.savepoints[0] not in world.storage.found, world.describe()
    assert not world.sink.repeated
    assert not world.sink.lost


@pytest.mark.parametrize("mode", ["die-after", "fail-before", "fail-after"])
def test_the_operator_may_die_or_fail_at_any_call(mode: Any) -> None:
    world = World()
    run(taken_and_removed, world)
    for at in range(1, len(world.fault.calls) + 1):
        run(taken_and_removed, World(Fault(at=at, mode=mode)))


def test_a_snapshot_is_protected_from_its_creation() -> None:
    """If it were deleted before the operator has read it once, its savepoint would have no owner."""
    from penstock_operator.resources.names import FINALIZER, Owner
    from penstock_operator.resources.records import flink_snapshot

    manifest = flink_snapshot(
        Owner("default", "weather", "u"), "s", trigger="upgrade", kind="savepoint", path="s3://b/sp"
    )
    assert manifest["metadata"]["finalizers"] == [FINALIZER]
