"""The status is lost before the running incarnation has completed a checkpoint. The operator finds out where it has started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.api.status.flinkjob_status import parse_status
from penstock_operator.api.status.snapshots import Restore
from penstock_operator.errors import StorageError
from penstock_operator.reconcile.decide.restore.beginning import origin_of
from penstock_operator.reconcile.decide.savepoints.retention import protected_paths
from penstock_operator.storage.snapshots import Beginning
from tests.unit.operator.reconcile.decide.savepoints.test_lost_stop import reported
from tests.unit.operator.reconcile.decide.test_lost_status import wipe
from tests.unit.operator.world import Image, World
from tests.unit.operator.world.scenarios.scenario import deployed, played, running, spec, stalled
from tests.unit.operator.world.world import NAME

if TYPE_CHECKING:
    from collections.abc import Callable

MASTER = f"{NAME}-master"


def own_checkpoints(world: World) -> int:
    job = world.leading(NAME)
    return job.completed if job is not None else -1


async def started(world: World, **manifest: Any) -> str:
    """Start a second revision that has not completed a checkpoint. Return the path that it has started from."""
    await deployed(world, spec(**manifest))
    world.images["job:2"] = Image(checkpoints=False)
    world.edit(image="job:2")
    await world.until(lambda: world.status().get("running", {}).get("revision") != world.status()["stableRevision"])
    await world.until(lambda: own_checkpoints(world) == 0)
    return str(world.status()["running"]["restoredFrom"].get("path"))


async def adopted_again(world: World) -> None:
    wipe(world)
    await world.until(lambda: "Adopted" in reported(world))


def heal(world: World) -> None:
    world.images["job:2"] = Image()
    for job in world.jobs.values():
        job.image = Image()


MODES = [{"upgradeMode": "savepoint"}, {"upgradeMode": "last-state"}]


@pytest.mark.parametrize("job", MODES, ids=["from-a-savepoint", "from-a-checkpoint-of-the-former-incarnation"])
def test_a_lost_master_restarts_from_the_origin_of_the_adopted_incarnation(job: dict[str, Any]) -> None:
    async def scenario(world: World) -> None:
        path = await started(world, job=job)
        await adopted_again(world)
        world.cluster.drop("Deployment", "default", MASTER)
        await world.until(lambda: len(world.sink.restores) == 2)
        assert world.sink.restores[0] == world.sink.restores[1]
        assert world.status()["running"]["restoredFrom"]["path"] == path
        heal(world)
        await world.until(lambda: running(world, image="job:2"))

    played(scenario)


def test_a_master_that_is_lost_with_the_status_restarts_from_its_origin() -> None:
    """The arguments of the master are gone. The leader files name the snapshot."""

    async def scenario(world: World) -> None:
        path = await started(world)
        world.cluster.drop("Deployment", "default", MASTER)
        wipe(world)
        await world.until(lambda: len(world.sink.restores) == 2)
        assert world.sink.restores == [path, path]
        heal(world)
        await world.until(lambda: running(world, image="job:2"))

    played(scenario)


def test_a_lost_master_of_an_adopted_first_deployment_starts_empty_again() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(checkpoints=False)
        world.apply(spec())
        await world.until(lambda: own_checkpoints(world) == 0)
        job_id = world.status()["jobId"]
        await adopted_again(world)
        world.cluster.drop("Deployment", "default", MASTER)
        await world.until(lambda: len(world.sink.empty_starts) == 2)
        world.images["job:1"] = Image()
        for job in world.jobs.values():
            job.image = Image()
        await world.until(lambda: running(world))
        assert world.status()["jobId"] == job_id

    played(scenario, may_repeat=True)


def test_a_lost_master_of_an_adopted_stateless_upgrade_starts_empty_again() -> None:
    """The checkpoints of the former incarnation are still there, and are not taken."""

    async def scenario(world: World) -> None:
        await started(world, job={"upgradeMode": "stateless"})
        await adopted_again(world)
        world.cluster.drop("Deployment", "default", MASTER)
        await world.until(lambda: len(world.sink.empty_starts) == 3)
        heal(world)
        await world.until(lambda: running(world, image="job:2"))
        assert not world.sink.restores

    played(scenario, may_repeat=True)


def test_an_adopted_master_that_has_never_started_is_replaced_from_its_planned_origin() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.images["job:2"] = Image(starts=False)
        world.edit(image="job:2")
        await world.until(lambda: world.status().get("running", {}).get("image") == "job:2")
        path = world.status()["running"]["restoredFrom"]["path"]
        await adopted_again(world)
        await world.run(30)
        world.edit(image="job:3")
        await world.until(lambda: running(world, image="job:3"))
        assert world.sink.restores == [path]

    played(scenario)


@pytest.mark.parametrize(
    "forget",
    [
        lambda world, job_id: world.storage.started_jobs.update({job_id: ""}),
        lambda world, job_id: world.storage.completed.add(job_id),
    ],
    ids=["the-records-contradict-the-arguments", "a-checkpoint-was-completed-and-is-gone"],
)
def test_without_certainty_the_operator_names_the_folder_and_the_remedy(forget: Callable[[World, str], object]) -> None:
    async def scenario(world: World) -> None:
        path = await started(world)
        job_id = world.status()["jobId"]
        forget(world, job_id)
        await adopted_again(world)
        world.cluster.drop("Deployment", "default", MASTER)
        await world.until(lambda: stalled(world, "StateLost", "job.savepointRedeployNonce"))
        await world.run(60)
        assert len(world.sink.restores) == 1
        heal(world)
        world.edit(job={"initialSavepointPath": path, "savepointRedeployNonce": 7})
        await world.until(lambda: running(world, image="job:2"))

    played(scenario)


def test_an_adopted_job_waits_for_storage_before_it_starts_again() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        world.storage.down = "503 SlowDown"
        await adopted_again(world)
        world.cluster.drop("Deployment", "default", MASTER)
        await world.until(lambda: stalled(world, "StorageUnavailable", "503 SlowDown"))
        world.storage.down = ""
        await world.until(lambda: len(world.sink.restores) == 2)
        assert world.sink.restores[0] == world.sink.restores[1]
        heal(world)
        await world.until(lambda: running(world, image="job:2"))

    played(scenario)


def test_an_adopted_master_without_a_release_asks_a_person_where_to_start() -> None:
    """The status is lost between the handover to the pods on standby and their release."""

    async def refused(root: str, job_id: str, path: str) -> None:
        raise StorageError("AccessDenied")

    async def scenario(world: World) -> None:
        await deployed(world, spec(upgrade={"warmStart": True}))
        world.storage.release = refused  # type: ignore[method-assign]
        world.edit(image="job:2")
        await world.until(lambda: world.status().get("running", {}).get("image") == "job:2")
        path = world.status()["running"]["restoredFrom"]["path"]
        await adopted_again(world)
        await world.until(lambda: stalled(world, "StateLost", world.status()["jobId"]))
        world.edit(job={"initialSavepointPath": path, "savepointRedeployNonce": 7})
        await world.until(lambda: running(world, image="job:2"))

    played(scenario)


def test_a_lost_master_restarts_from_the_location_of_its_release() -> None:
    async def scenario(world: World) -> None:
        await deployed(world, spec(upgrade={"warmStart": True}))
        world.images["job:2"] = Image(checkpoints=False)
        world.edit(image="job:2")
        await world.until(lambda: bool(world.storage.released) and own_checkpoints(world) == 0)
        path = world.status()["running"]["restoredFrom"]["path"]
        await adopted_again(world)
        world.cluster.drop("Deployment", "default", MASTER)
        await world.until(lambda: len(world.sink.restores) == 2)
        assert world.sink.restores == [path, path]
        heal(world)
        await world.until(lambda: running(world, image="job:2"))

    played(scenario)


def test_the_savepoint_that_an_adopted_incarnation_has_started_from_is_kept() -> None:
    async def scenario(world: World) -> None:
        path = await started(world)
        await adopted_again(world)
        await world.run(20)
        status = parse_status(world.status())
        assert path in protected_paths(status)

    played(scenario)


def test_a_lost_master_may_still_drop_the_state_that_its_revision_was_allowed_to_drop() -> None:
    """The permission was taken out of the spec before the first checkpoint."""

    async def scenario(world: World) -> None:
        await deployed(world)
        world.images["job:2"] = Image(checkpoints=False, without="old")
        world.edit(image="job:2", job={"allowNonRestoredState": ["old"]})
        await world.until(lambda: world.status().get("running", {}).get("image") == "job:2")
        await world.until(lambda: own_checkpoints(world) == 0)
        world.edit(job={"allowNonRestoredState": []})
        await adopted_again(world)
        world.cluster.drop("Deployment", "default", MASTER)
        await world.until(lambda: len(world.sink.restores) == 2)
        world.images["job:2"] = Image()
        for job in world.jobs.values():
            job.image = Image()
        await world.until(lambda: running(world, image="job:2"))

    played(scenario)


def reported_by(kind: str, path: str | None = None) -> Restore:
    return Restore(kind=kind, path=path)


SAVEPOINT = "s3://b/savepoint-1"


@pytest.mark.parametrize(
    ("reported", "found", "expected"),
    [
        (reported_by("Savepoint", SAVEPOINT), {}, SAVEPOINT),
        (reported_by("Savepoint", SAVEPOINT), {"led": True, "path": SAVEPOINT}, SAVEPOINT),
        (reported_by("Savepoint", SAVEPOINT), {"led": True}, None),
        (reported_by("Savepoint", SAVEPOINT), {"led": True, "path": SAVEPOINT, "ended": True}, None),
        (reported_by("Savepoint", SAVEPOINT), {"led": True, "path": SAVEPOINT, "completed": True}, None),
        (reported_by("Fresh"), {}, ""),
        (reported_by("Fresh"), {"led": True}, ""),
        (reported_by("Fresh"), {"led": True, "path": SAVEPOINT}, None),
        (reported_by("Fresh"), {"led": True, "ended": True}, None),
        (reported_by("Latest"), {}, None),
        (reported_by("Latest"), {"led": True}, None),
        (reported_by("Latest"), {"led": True, "path": SAVEPOINT}, SAVEPOINT),
        (reported_by("Latest"), {"released": SAVEPOINT}, SAVEPOINT),
        (reported_by("Latest"), {"released": ""}, ""),
        (reported_by("Latest"), {"led": True, "released": ""}, ""),
        (reported_by("Latest"), {"led": True, "path": SAVEPOINT, "released": ""}, None),
    ],
)
def test_an_origin_is_known_only_if_all_records_agree(
    reported: Restore, found: dict[str, Any], expected: str | None
) -> None:
    origin = origin_of(reported, Beginning("s3://b/chk/job", **found))
    assert (None if origin is None else origin.path or "") == expected
    assert origin is None or (origin.kind == "Fresh") == (expected == "")
