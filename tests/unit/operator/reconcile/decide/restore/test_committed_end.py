"""No start goes back behind the committed output, unless a person requests it. Unknown state never counts as absent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.scenarios.scenario import at, played, running
from tests.unit.operator.world.storage import Stored
from tests.unit.operator.world.world import NAME

if TYPE_CHECKING:
    from collections.abc import Callable

NEW = "job:2"
REFUSES = Image(
    check={"ok": False, "problems": [{"code": "RESTORE_REFUSED", "message": "uid 'new' has no operator", "remedy": ""}]}
)


async def upgraded(world: World, image: Image) -> None:
    """Run a job for a while, and start an upgrade of it."""
    world.images[NEW] = image
    manifest = flinkjob()
    manifest["spec"]["rollback"] = {"after": "40s"}
    world.apply(manifest)
    await world.until(lambda: running(world))
    await world.run(30)
    world.edit(image=NEW)


def checkpoints_of_the_failed(world: World) -> list[Stored]:
    job_id = world.status()["running"]["jobId"]
    return world.storage.of_job(job_id)


def rest_away(world: World) -> None:
    world.rest_down = True


def nothing_answers(world: World) -> None:
    world.rest_down, world.storage.down = True, "storage: connection refused"


def all_is_back(world: World) -> None:
    world.rest_down, world.storage.down = False, ""


async def given_up(world: World, image: Image, silence: Callable[[World], None] = all_is_back) -> None:
    """Wait until the operator stops the new revision, which has not become stable in time."""
    await upgraded(world, image)
    await world.until(lambda: at("Watch")(world))
    silence(world)
    await world.until(lambda: at("Teardown")(world), within=200)


async def fails_unseen(world: World) -> None:
    """Make the master silent from its start until it has completed checkpoints and failed."""
    await world.until(lambda: at("Watch")(world))
    rest_away(world)
    await world.until(lambda: any(job.state == "FAILED" for job in world.jobs.values()))
    all_is_back(world)


def rolled_back(world: World) -> bool:
    done = [h for h in world.status().get("history", ()) if h["kind"] == "Rollback" and h["outcome"] == "Succeeded"]
    return bool(done) and "operation" not in world.status() and world.status()["running"]["image"] == "job:1"


def test_a_rollback_continues_from_a_first_checkpoint_two_seconds_before_the_failure() -> None:
    async def scenario(world: World) -> None:
        await upgraded(world, Image(fails_after=12))
        await fails_unseen(world)
        await world.until(lambda: rolled_back(world))
        assert world.status()["running"]["restoredFrom"]["kind"] == "Checkpoint"

    played(scenario)


def test_storage_is_read_if_rest_does_not_answer() -> None:
    async def scenario(world: World) -> None:
        await given_up(world, Image(), rest_away)
        all_is_back(world)
        await world.until(lambda: rolled_back(world))

    played(scenario)


def test_the_rollback_waits_if_neither_rest_nor_storage_answers() -> None:
    async def scenario(world: World) -> None:
        await given_up(world, Image(), nothing_answers)
        await world.run(300, pace=5)
        assert world.condition("Stalled")["reason"] == "StorageUnavailable"
        assert not world.cluster.select("Pod", None, {"penstock.dev/role": "master"})
        all_is_back(world)
        await world.until(lambda: rolled_back(world))

    played(scenario)


def test_a_first_checkpoint_during_the_teardown_counts() -> None:
    """The operator decides without a checkpoint.

    The master's node is then cut off, and the master completes one unobserved.
    """

    async def scenario(world: World) -> None:
        await given_up(world, Image(checkpoints=False))
        job_id = world.status()["operation"].get("jobId") or world.status()["running"]["jobId"]
        position = max(world.sink.ends[NAME], 1)
        path = f"{world.storage.root}/{job_id}/chk-1"
        world.storage.put(Stored(path, 1, job_id, position + 50, world.now()))
        world.sink.commit(NAME, position, position + 50)
        await world.until(lambda: rolled_back(world))
        assert world.status()["running"]["restoredFrom"]["path"] == path

    played(scenario)


def test_the_savepoint_is_used_if_the_failed_revision_has_no_checkpoint() -> None:
    async def scenario(world: World) -> None:
        await upgraded(world, Image(checkpoints=False))
        await world.until(lambda: rolled_back(world))
        assert world.status()["running"]["restoredFrom"]["path"] == world.savepoints[0]

    played(scenario)


@pytest.mark.parametrize("check", [True, False], ids=["with-checks", "with-checks-switched-off"])
def test_a_graph_that_does_not_accept_the_state_blocks_the_rollback(check: bool) -> None:
    async def scenario(world: World) -> None:
        await blocked(world, check=check)
        stalled = world.condition("Stalled")
        assert checkpoints_of_the_failed(world)[-1].path in stalled["message"]
        assert "uid 'new' has no operator" in stalled["message"]
        assert world.savepoints[0] in stalled["message"]
        assert "job.savepointRedeployNonce" in stalled["message"]
        assert [reason for reason, _ in world.events()].count("RollbackBlocked") == 1

    played(scenario)


async def blocked(world: World, *, check: bool = True) -> None:
    await upgraded(world, Image(fails_after=12))
    world.edit(upgrade={"check": check})
    world.images["job:1"] = REFUSES
    await fails_unseen(world)
    await world.until(lambda: world.condition("Stalled").get("reason") == "RollbackBlocked", within=200)
    await world.run(120)
    assert world.condition("Stalled")["reason"] == "RollbackBlocked"
    assert not world.cluster.select("Pod", None, {"penstock.dev/role": "master"})


def test_a_person_may_then_fix_the_program_and_no_record_is_repeated() -> None:
    async def scenario(world: World) -> None:
        await blocked(world)
        world.edit(image="job:3")
        await world.until(lambda: running(world, image="job:3"))

    played(scenario)


def test_a_person_may_then_go_back_to_the_savepoint_and_repeat_records() -> None:
    async def scenario(world: World) -> None:
        await blocked(world)
        world.images["job:1"] = Image()
        world.edit(image="job:1", job={"initialSavepointPath": world.savepoints[0], "savepointRedeployNonce": 1})
        await world.until(lambda: running(world, image="job:1"))
        assert world.sink.repeated
        assert not world.sink.lost
        assert world.status()["running"]["restoredFrom"]["path"] == world.savepoints[0]

    played(scenario, may_repeat=True)


def test_a_person_may_then_suspend_the_job() -> None:
    async def scenario(world: World) -> None:
        await blocked(world)
        newest = checkpoints_of_the_failed(world)[-1].path
        world.edit(job={"state": "suspended"})
        await world.until(lambda: world.status().get("phase") == "Suspended")
        assert world.status()["nextRestore"]["path"] == newest

    played(scenario)


def test_missing_checkpoints_of_the_failed_revision_block_the_rollback() -> None:
    async def scenario(world: World) -> None:
        await upgraded(world, Image(fails_after=25))
        await world.until(lambda: at("Watch")(world))
        rest_away(world)
        await world.until(lambda: bool(checkpoints_of_the_failed(world)))
        await world.run(20)
        for stored in checkpoints_of_the_failed(world):
            del world.storage.found[stored.path]
        all_is_back(world)
        await world.until(lambda: world.condition("Stalled").get("reason") == "StateLost", within=300)
        assert not world.sink.repeated

    played(scenario, may_repeat=True)


def test_a_torn_newest_checkpoint_is_never_silently_replaced_by_an_older_one() -> None:
    async def scenario(world: World) -> None:
        world.apply(flinkjob(upgradeMode="last-state"))
        await world.until(lambda: running(world))
        await world.run(30)
        world.edit(image=NEW)
        await world.until(lambda: at("Teardown")(world), within=600)
        job_id = world.status()["running"]["jobId"]
        newest = world.storage.of_job(job_id)[-1]
        path = f"{world.storage.root}/{job_id}/chk-{newest.id + 1}"
        world.storage.put(Stored(path, newest.id + 1, job_id, newest.position + 50, world.now()))
        world.sink.commit(NAME, newest.position, newest.position + 50)
        world.storage.torn.add(path)
        await world.until(lambda: world.condition("Stalled").get("reason") == "StateLost", within=200)
        assert path in world.condition("Stalled")["message"]
        assert "would repeat the records" in world.condition("Stalled")["message"]
        assert "StateLost" in [reason for reason, _ in world.events()]
        world.storage.torn.clear()
        await world.until(lambda: running(world, image=NEW))

    played(scenario)


def test_a_torn_checkpoint_older_than_the_savepoint_has_no_effect() -> None:
    async def scenario(world: World) -> None:
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        await world.run(30)
        world.edit(image=NEW)
        await world.until(lambda: at("Seal")(world), within=100)
        for stored in world.storage.of_job(world.status()["running"]["jobId"]):
            if stored.id < max(s.id for s in world.storage.found.values()):
                world.storage.torn.add(stored.path)
        await world.until(lambda: running(world, image=NEW))

    played(scenario)


def test_an_invalid_edit_does_not_restore_the_failed_revision() -> None:
    async def scenario(world: World) -> None:
        await blocked(world)
        world.edit(job={"parallelism": 100_000})
        await world.run(120)
        assert not world.cluster.select("Pod", None, {"penstock.dev/role": "master"})
        assert "RollbackAbandoned" not in [reason for reason, _ in world.events()]

    played(scenario)


def test_a_person_can_continue_from_another_snapshot_if_the_state_is_lost() -> None:
    async def scenario(world: World) -> None:
        world.apply(flinkjob(upgradeMode="last-state"))
        await world.until(lambda: running(world))
        await world.run(30)
        world.edit(image=NEW)
        await world.until(lambda: at("Teardown")(world), within=600)
        found = world.storage.of_job(world.status()["running"]["jobId"])
        world.storage.torn.add(found[-1].path)
        await world.until(lambda: world.condition("Stalled").get("reason") == "StateLost", within=200)
        world.edit(job={"initialSavepointPath": found[0].path, "savepointRedeployNonce": 1})
        await world.until(lambda: running(world, image=NEW))
        assert world.status()["running"]["restoredFrom"]["path"] == found[0].path

    played(scenario, may_repeat=True)
