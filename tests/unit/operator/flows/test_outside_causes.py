"""Causes outside of the program: actions of a person over REST, unavailable storage, limits of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.operator.flows.test_deletion_savepoint import leading
from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.scenarios.scenario import at, deployed, exactly_once, gone, played, running, spec

if TYPE_CHECKING:
    from collections.abc import Callable


def events(world: World) -> dict[str, str]:
    return dict(world.events())


@pytest.mark.parametrize("then", ["stays", "master-restarts"])
def test_a_job_that_was_canceled_over_rest_remains_canceled(then: str) -> None:
    async def story(world: World) -> None:
        job_id = await deployed(world)
        leading(world)._end("CANCELED")
        await world.run(20)
        if then == "master-restarts":
            world.crash_master()
        await world.run(300, pace=5)
        assert world.status()["running"]["jobId"] == job_id
        assert "RecoverStarted" not in events(world)
        assert world.condition("Stalled")["reason"] == "JobCanceled"
        assert "restartNonce" in world.condition("Stalled")["message"]
        world.edit(job={"restartNonce": 1})
        await world.until(lambda: running(world) and world.status()["running"]["jobId"] != job_id)

    played(story)


def test_a_job_that_was_canceled_on_trial_is_not_rolled_back() -> None:
    async def story(world: World) -> None:
        await deployed(world)
        world.edit(image="job:2")
        await world.until(lambda: at("Watch")(world) and world.leading("weather") is not None)
        leading(world)._end("CANCELED")
        await world.run(200)
        assert "RollbackStarted" not in events(world)
        assert world.condition("Stalled")["reason"] == "JobCanceled"
        assert "rejected" not in world.status()

    played(story)


def _operator_only(world: World, reason: str) -> None:
    world.storage.down = reason


def _everybody(world: World, reason: str) -> None:
    world.storage.lost = reason


@pytest.mark.parametrize("outage", [_operator_only, _everybody])
@pytest.mark.parametrize("fails", [False, True], ids=["waits", "fails"])
def test_a_storage_outage_rejects_no_healthy_revision(outage: Callable[[World, str], None], fails: bool) -> None:
    async def story(world: World) -> None:
        world.images["job:2"] = Image(checkpoints=False)
        await deployed(world, spec(rollback={"after": "40s"}))
        world.edit(image="job:2")
        await world.until(lambda: at("Watch")(world) and world.leading("weather") is not None)
        outage(world, "503 SlowDown")
        await world.run(15)
        if fails:
            leading(world)._end("FAILED")
        await world.run(120)
        assert world.condition("Stalled")["reason"] == "StorageUnavailable"
        outage(world, "")
        world.images["job:2"] = Image()
        if world.leading("weather") is not None:
            leading(world).image = Image()
        await world.until(lambda: running(world, image="job:2"))
        assert "rejected" not in world.status()
        assert "RollbackStarted" not in events(world)

    played(story)


def test_a_master_that_keeps_ending_without_storage_rejects_no_healthy_revision() -> None:
    async def story(world: World) -> None:
        await deployed(world, spec(rollback={"after": "40s"}))
        world.storage.crashes = True
        world.edit(image="job:2")
        await world.until(lambda: at("Watch")(world))
        _engine_only(world, "503 SlowDown")
        world.crash_master()
        await world.run(300, pace=5)
        assert world.condition("Stalled")["reason"] == "StorageUnavailable"
        assert "503 SlowDown" in world.condition("Stalled")["message"]
        _engine_only(world, "")
        await world.until(lambda: running(world, image="job:2"))
        assert "rejected" not in world.status()
        assert "RollbackStarted" not in events(world)

    played(story)


@pytest.mark.parametrize("code", ["STORAGE", "STORAGE_REFUSED"])
def test_a_job_that_failed_because_of_storage_is_restarted_and_not_rolled_back(code: str) -> None:
    """The operator itself can always use storage."""

    async def story(world: World) -> None:
        world.images["job:2"] = Image(checkpoints=False)
        await deployed(world, spec(rollback={"after": "2m"}))
        world.edit(image="job:2")
        await world.until(lambda: at("Watch")(world) and world.leading("weather") is not None)
        leading(world).failure = f"[{code}] cannot put s3://bucket/checkpoints/x: 403 Forbidden"
        leading(world)._end("FAILED")
        await world.until(lambda: world.condition("Stalled").get("reason") == "StorageUnavailable")
        assert "403 Forbidden" in world.condition("Stalled")["message"]
        world.images["job:2"] = Image()
        await world.until(lambda: running(world, image="job:2"))
        assert "MasterRestarted" in events(world)
        assert "RollbackStarted" not in events(world)
        assert "rejected" not in world.status()
        exactly_once(world)

    played(story)


@pytest.mark.parametrize(
    "failure",
    [
        "[STORAGE_REFUSED] cannot put s3://wrong/x: 403",
        pytest.param("ValueError: no [STORAGE] left", marks=[pytest.mark.slow, pytest.mark.faults]),
    ],
)
def test_a_revision_whose_job_always_fails_with_a_storage_error_is_abandoned_after_half_an_hour(failure: str) -> None:
    """Its own settings may name a bucket that it must not use.

    A longer wait does not help, so the former revision must return.
    """

    async def story(world: World) -> None:
        world.images["job:2"] = Image(checkpoints=False, fails_after=3, failure=failure)
        await deployed(world, spec(rollback={"after": "2m"}))
        world.edit(image="job:2")
        await world.until(lambda: "RollbackStarted" in events(world), within=2400, pace=5)
        assert failure in events(world)["RollbackStarted"]
        await world.until(lambda: "RollbackSucceeded" in events(world))
        assert world.status()["running"]["image"] == "job:1"
        exactly_once(world)

    played(story)


def test_a_revision_whose_master_never_reaches_its_storage_is_abandoned_after_half_an_hour() -> None:
    async def story(world: World) -> None:
        await deployed(world, spec(rollback={"after": "40s"}))
        world.storage.crashes = True
        world.edit(image="job:2")
        await world.until(lambda: at("Watch")(world))
        _engine_only(world, "403 Forbidden")
        world.crash_master()
        await world.until(lambda: "RollbackStarted" in events(world), within=2000, pace=5)
        assert "403 Forbidden" in events(world)["RollbackStarted"]
        _engine_only(world, "")
        await world.until(lambda: "RollbackSucceeded" in events(world))
        assert world.status()["running"]["image"] == "job:1"

    played(story)


def _engine_only(world: World, reason: str) -> None:
    """Make storage unusable for masters but not for the operator."""
    world.storage.unusable = reason


@pytest.mark.parametrize("trigger", ["nonce", "periodic", "upgrade"])
def test_a_snapshot_that_cannot_be_created_is_reported_until_it_can(trigger: str) -> None:
    async def story(world: World) -> None:
        await deployed(world)
        world.cluster.denied["FlinkSnapshot"] = "exceeded quota: count/flinksnapshots"
        if trigger == "nonce":
            world.edit(job={"savepointTriggerNonce": 1})
        elif trigger == "periodic":
            world.edit(snapshots={"periodic": {"interval": "60s"}})
        else:
            world.edit(image="job:2")
        await world.until(lambda: world.condition("Stalled").get("reason") == "SnapshotRefused")
        for _ in range(6):
            await world.run(15)
            assert world.condition("Ready")["status"] == "False"
            assert "exceeded quota" in world.condition("Stalled")["message"]
        assert [reason for reason, _ in world.events()].count("SnapshotRefused") == 1
        del world.cluster.denied["FlinkSnapshot"]
        await world.until(lambda: bool(world.snapshots(trigger=trigger)) and running(world), within=120)

    played(story)


def test_twenty_restarts_without_a_checkpoint_keep_the_last_good_one() -> None:
    async def story(world: World) -> None:
        await deployed(world)
        world.images["job:1"] = Image(checkpoints=False, fails_after=3)
        leading(world).image = world.images["job:1"]
        good = world.status()["running"]["jobId"]
        await world.until(lambda: len(world.status().get("superseded", ())) >= 20, within=8000, pace=5)
        await world.run(1500, pace=5)
        assert good in {former["jobId"] for former in world.status()["superseded"]}
        world.delete()
        await world.until(lambda: gone(world))
        assert good in events(world)["Deleted"]

    played(story, may_repeat=True)


def test_an_impossibly_short_time_is_refused() -> None:
    async def story(world: World) -> None:
        await deployed(world)
        for part in (
            {"rollback": {"after": "0s"}},
            {"health": {"window": "0s"}},
            {"upgrade": {"savepointTimeout": "0s"}},
        ):
            world.apply({**flinkjob(), "spec": {**flinkjob()["spec"], **part}})
            await world.until(lambda: world.stalled())
            text = world.condition("Stalled")["message"]
            assert "0s is less than a second" in text
            assert next(iter(part)) in text
        world.apply(flinkjob())
        await world.until(lambda: running(world))

    played(story)
