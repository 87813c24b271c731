"""Failures around a running job: the status names the remedy, the job recovers if possible, and no record is lost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.engine.account import Request
from penstock_operator.errors import EngineError
from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.engine import FakeEngineClient, FakeJob
from tests.unit.operator.world.scenarios.scenario import (
    FOREIGN,
    deployed,
    gone,
    operations,
    played,
    running,
    stalled,
    with_foreign_savepoint,
)
from tests.unit.operator.world.world import NAME

if TYPE_CHECKING:
    from penstock_operator.reconcile.job_loop import Transition


def test_a_lost_worker_is_left_to_the_engine() -> None:
    async def scenario(world: World) -> None:
        job_id = await deployed(world)
        world.node_capacity = 0
        world.kill_pod("worker")
        await world.until(lambda: stalled(world, "Unschedulable", "Add nodes"), within=60)
        assert world.condition("Running")["reason"] == "RESTARTING"
        await world.until(lambda: "Add nodes" in dict(world.events()).get("Unschedulable", ""), within=10)
        await world.run(60)
        assert [reason for reason, _ in world.events()].count("Unschedulable") == 1
        world.node_capacity = 2
        await world.until(lambda: running(world))
        assert (world.status()["jobId"], operations(world)) == (job_id, ["Deploy"])
        world.node_capacity = 0
        world.kill_pod("worker")
        await world.until(lambda: [reason for reason, _ in world.events()].count("Unschedulable") == 2, within=60)
        world.node_capacity = 2
        await world.until(lambda: running(world))

    played(scenario)


def test_a_job_whose_master_cannot_be_created_does_not_count_as_running() -> None:
    async def scenario(world: World) -> None:
        job_id = await deployed(world)
        world.deployments.quota = 0
        world.kill_pod("master")
        await world.until(lambda: stalled(world, "QuotaExceeded", "Raise the quota"), within=60)
        assert world.condition("Running")["status"] == "False"
        assert world.condition("Ready")["status"] == "False"
        world.deployments.quota = None
        await world.until(lambda: running(world))
        assert (world.status()["jobId"], operations(world)) == (job_id, ["Deploy"])

    played(scenario)


def test_a_lost_node_is_named_with_a_remedy() -> None:
    async def scenario(world: World) -> None:
        job_id = await deployed(world)
        world.taints_evict = False
        world.lose_node()
        await world.until(lambda: stalled(world, "NodeLost", "does not respond"), within=90)
        assert "restart it, or delete it" in world.condition("Stalled")["message"]
        await world.until(lambda: "NodeLost" in dict(world.events()), within=10)
        assert world.status()["jobId"] == job_id

    played(scenario)


def test_a_lost_master_continues_from_its_newest_checkpoint() -> None:
    async def scenario(world: World) -> None:
        job_id = await deployed(world)
        world.kill_pod("master")
        await world.until(lambda: len(world.sink.restores) == 1 and running(world))
        assert (world.status()["jobId"], operations(world)) == (job_id, ["Deploy"])

    played(scenario)


def test_a_master_lost_before_its_first_checkpoint_starts_from_the_former_incarnation() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        await world.run(15)
        world.edit(image="job:2", job={"upgradeMode": "last-state"})
        await world.until(lambda: world.status().get("operation", {}).get("step") == "Teardown")
        world.node_capacity = 0
        await world.until(lambda: len(world.sink.restores) == 1)
        world.edit(job={"state": "suspended", "upgradeMode": "savepoint"})
        await world.until(lambda: world.status()["operation"]["kind"] == "Suspend")
        world.edit(job={"state": "running"})
        await world.until(lambda: world.status().get("operation") is None)
        world.node_capacity = 100
        world.cluster.remove("Deployment", "default", f"{NAME}-master")
        await world.until(lambda: running(world, image="job:2"))
        assert len(world.sink.restores) == 2
        assert world.sink.restores[0] == world.sink.restores[1]

    played(scenario)


def test_a_job_suspended_while_its_recovery_is_denied_resumes_from_the_checkpoint_of_the_former_incarnation() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        await world.run(15)
        world.cluster.denied = {"ConfigMap": "denied by a policy"}
        world.cluster.remove("Deployment", "default", f"{NAME}-master")
        await world.until(lambda: "Denied" in [reason for reason, _ in world.events()])
        world.edit(job={"state": "suspended"})
        await world.until(lambda: world.status()["phase"] == "Suspended")
        world.cluster.denied = {}
        world.edit(job={"state": "running"})
        await world.until(lambda: running(world))

    played(scenario)


def test_a_master_on_a_node_that_recovers_writes_nothing() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        (pod,) = world.cluster.select("Pod", None, {"penstock.dev/role": "master"})
        world.zombies.add(pod["metadata"]["uid"])
        world.lose_node("master")
        world.cluster.remove("Pod", "default", pod["metadata"]["name"])
        await world.until(lambda: len(world.jobs) == 2 and running(world))
        assert world.jobs[pod["metadata"]["uid"]].state == "SUSPENDED"
        world.two_masters.clear()  # neither commits in the moment before the new one's first checkpoint
        await world.run(60)

    played(scenario)


def test_a_crash_loop_shows_the_message_of_the_container() -> None:
    async def scenario(world: World) -> None:
        job_id = await deployed(world)
        world.images["job:1"] = Image(starts=False)
        world.crash_master()
        await world.until(lambda: stalled(world, "CrashLoopBackOff", "the master refuses to start"))
        await world.run(120)
        assert operations(world) == ["Deploy"], "nothing to roll back to: the same revision was stable"
        world.images["job:1"] = Image()
        await world.until(lambda: running(world))
        assert world.status()["jobId"] == job_id

    played(scenario)


def test_insufficient_capacity_for_workers_is_reported() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.node_capacity = 3
        world.edit(job={"parallelism": 4})
        await world.until(lambda: stalled(world, "Unschedulable", "The job keeps parallelism 2"))
        assert world.condition("Running")["status"] == "True"
        world.edit(job={"parallelism": 3})
        await world.until(lambda: running(world, parallelism=3))
        world.edit(job={"parallelism": 4})
        await world.until(lambda: stalled(world, "Unschedulable", "Add nodes"))
        world.node_capacity = 4
        await world.until(lambda: running(world, parallelism=4))

    played(scenario)


@pytest.mark.parametrize("storage", ["", "503 SlowDown"], ids=["savepoints-fail", "storage-does-not-answer-either"])
def test_a_stop_that_keeps_failing_is_reported_once_with_a_stable_message(storage: str) -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(savepoints=False)
        await deployed(world)
        reported: list[tuple[str, str]] = []

        def note(transition: Transition) -> None:
            found = transition.after.condition("Stalled")
            assert found is not None
            if found.status == "True" or reported:
                reported.append((found.reason, re.sub(r"Attempt \d+ at \d\d:\d\d:\d\d UTC$", "", found.message)))

        world.watch = note
        world.edit(image="job:2")
        await world.until(lambda: world.status().get("operation", {}).get("step") == "Stop")
        world.storage.down = storage
        await world.run(3600, pace=5)
        assert world.status()["operation"]["attempt"] > 8
        assert len(set(reported)) == 1, set(reported)
        assert reported[0][0] == "SavepointFailed"
        assert "AccessDenied: the savepoint folder. The job keeps running." in reported[0][1]
        events = [reason for reason, _ in world.events()]
        assert max(events.count(reason) for reason in events) <= 2, events
        assert world.condition("Running")["status"] == "True"
        world.storage.down, job = "", world.leading(NAME)
        assert job is not None
        world.watch, job.image = lambda transition: None, Image()
        await world.until(lambda: running(world, image="job:2"))
        assert len(world.savepoints) == 1

    played(scenario)


def test_a_rescale_that_keeps_failing_is_reported_once_with_a_stable_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(job: FakeJob, request: str, parallelism: int) -> None:
        job._finish(request, Request(request, "Failed", cause="the partitioner says no"))

    async def scenario(world: World) -> None:
        await deployed(world)
        reported: set[tuple[str, str]] = set()
        world.edit(job={"parallelism": 3})
        await world.until(lambda: stalled(world, "RescaleFailed", "the partitioner says no"))

        def note(transition: Transition) -> None:
            found = transition.after.condition("Stalled")
            assert found is not None
            reported.add((found.status, re.sub(r"Attempt \d+ at \d\d:\d\d:\d\d UTC$", "", found.message)))

        world.watch = note
        await world.run(1800, pace=5)
        assert len(reported) == 1, reported
        assert [reason for reason, _ in world.events()].count("RescaleFailed") == 2
        monkeypatch.undo()
        await world.until(lambda: running(world, parallelism=3))

    monkeypatch.setattr(FakeJob, "_rescale", refuses)
    played(scenario)


def test_an_exceeded_quota_is_named_and_raising_it_is_enough() -> None:
    async def scenario(world: World) -> None:
        world.deployments.quota = 1
        world.apply(flinkjob())
        await world.until(lambda: world.status().get("operation", {}).get("step") == "Watch")
        await world.until(lambda: stalled(world, "QuotaExceeded", "exceeded quota: small"), within=15)
        assert "Raise the quota" in world.condition("Stalled")["message"]
        assert "Raise the quota" in dict(world.events())["QuotaExceeded"]
        await world.run(120)
        assert [reason for reason, _ in world.events()].count("QuotaExceeded") == 1
        await world.until(lambda: stalled(world, "DeployFailed", "Raise the quota"))
        world.deployments.quota = None
        await world.until(lambda: running(world))

    played(scenario)


def test_a_quota_that_is_raised_in_time_leaves_no_trace() -> None:
    async def scenario(world: World) -> None:
        world.deployments.quota = 1
        world.apply(flinkjob())
        await world.until(lambda: stalled(world, "QuotaExceeded", "Raise the quota"))
        world.deployments.quota = None
        await world.until(lambda: world.condition("Stalled")["status"] == "False", within=10)
        await world.until(lambda: running(world))
        assert operations(world) == ["Deploy"]

    played(scenario)


def test_a_quota_too_small_for_an_upgrade_is_named_before_the_rollback() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.edit(image="job:2")
        await world.until(lambda: world.status().get("operation", {}).get("step") == "Teardown")
        world.deployments.quota = 1
        await world.until(lambda: stalled(world, "QuotaExceeded", "exceeded quota: small"))
        await world.until(lambda: world.status()["operation"]["kind"] == "Rollback")
        assert "exceeded quota: small" in world.status()["history"][0]["message"]
        world.deployments.quota = None
        await world.until(lambda: world.status().get("running", {}).get("stable") is True)
        assert world.status()["running"]["image"] == "job:1"

    played(scenario)


def test_a_refused_object_is_retried() -> None:
    async def scenario(world: World) -> None:
        world.cluster.denied["Deployment"] = "admission webhook says no"
        world.apply(flinkjob())
        await world.until(lambda: stalled(world, "Denied", "admission webhook says no"))
        del world.cluster.denied["Deployment"]
        await world.until(lambda: running(world))

    played(scenario)


def test_evicted_pods_are_not_awaited() -> None:
    """A ReplicaSet creates replacements and never deletes evicted pods."""

    async def scenario(world: World) -> None:
        await deployed(world)
        for role in ("master", "worker"):
            world.evict(role)
        await world.until(lambda: len(world.sink.restores) == 1 and running(world))
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))
        left = world.cluster.select("Pod", None, {})
        assert sum(p["status"].get("reason") == "Evicted" for p in left) == 2
        world.delete()
        await world.until(lambda: gone(world), within=60)

    played(scenario)


def test_a_master_that_does_not_answer_is_not_restarted() -> None:
    async def scenario(world: World) -> None:
        job_id = await deployed(world)
        world.rest_down = True
        await world.until(lambda: world.condition("Ready")["status"] == "False", within=120)
        assert world.condition("Running")["reason"] == "NoAnswer"
        await world.run(300, pace=5)
        world.rest_down = False
        await world.until(lambda: running(world))
        assert (world.status()["jobId"], operations(world)) == (job_id, ["Deploy"])

    played(scenario)


def test_storage_that_does_not_answer_stops_no_running_job() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.storage.down = "connection refused"
        await world.run(120)
        assert world.condition("Ready")["status"] == "True", "nothing needs it now"
        world.edit(image="job:2")
        await world.until(lambda: stalled(world, "StorageUnavailable", "connection refused"))
        assert world.condition("Running")["status"] == "True"
        world.storage.down = ""
        await world.until(lambda: running(world, image="job:2"))

    played(scenario)


def test_storage_that_fails_during_an_upgrade_is_awaited() -> None:
    async def scenario(world: World) -> None:
        await deployed(world)
        world.edit(image="job:2")
        await world.until(lambda: world.status().get("operation", {}).get("step") in ("Seal", "Teardown"))
        world.storage.down = "503 SlowDown"
        await world.until(lambda: stalled(world, "StorageUnavailable", "503 SlowDown"))
        await world.run(200)
        assert not world.sink.restores, "unknown is not absent: nothing is started"
        world.storage.down = ""
        await world.until(lambda: running(world, image="job:2"))
        assert len(world.savepoints) == 1

    played(scenario)


def test_lost_state_waits_for_a_person_who_can_choose_another_snapshot() -> None:
    async def scenario(world: World) -> None:
        job_id = await deployed(world)
        for path in [p for p in world.storage.found if job_id in p]:
            del world.storage.found[path]
        world.cluster.remove("Deployment", "default", f"{NAME}-master")
        await world.until(lambda: stalled(world, "StateLost", "savepointRedeployNonce"))
        await world.run(120)
        assert world.sink.empty_starts == [job_id], "it is never started empty by accident"
        ends = world.sink.ends[NAME]
        with_foreign_savepoint(world)
        world.sink.ends[NAME] = 70
        assert ends > 70
        world.edit(job={"initialSavepointPath": FOREIGN, "savepointRedeployNonce": 1})
        await world.until(lambda: running(world))
        assert world.status()["running"]["restoredFrom"]["path"] == FOREIGN

    played(scenario)


def test_a_torn_newest_checkpoint_is_not_skipped() -> None:
    async def scenario(world: World) -> None:
        job_id = await deployed(world)
        newest, older = (world.storage.of_job(job_id)[-1].path, world.storage.of_job(job_id)[-2].path)
        world.cluster.remove("Deployment", "default", f"{NAME}-master")
        world.storage.torn.add(newest)
        await world.until(lambda: stalled(world, "StateLost", older))
        world.storage.torn.clear()
        await world.until(lambda: running(world))
        assert world.status()["jobId"] == job_id

    played(scenario)


def test_a_job_that_keeps_failing_is_restarted_with_growing_pauses() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(fails_after=15)
        world.apply(flinkjob())
        await world.run(1800, pace=5)
        attempts = operations(world).count("Recover")
        assert 4 <= attempts <= 10
        recoveries = [text for reason, text in world.events() if reason == "RecoverStarted"]
        assert recoveries
        assert all("a record makes the job fail" in text for text in recoveries)
        world.images["job:1"] = Image()
        await world.until(lambda: running(world))

    played(scenario)


def test_objects_deleted_or_changed_by_hand_are_restored() -> None:
    async def scenario(world: World) -> None:
        job_id = await deployed(world)
        world.cluster.remove("Service", "default", f"{NAME}-rest")
        world.cluster.remove("Deployment", "default", f"{NAME}-worker")
        for loop in world.loops.values():
            loop.read_all_objects()
        await world.until(lambda: world.cluster.one("Service", f"{NAME}-rest") is not None)
        await world.until(lambda: world.cluster.one("Deployment", f"{NAME}-worker") is not None and running(world))
        assert world.status()["jobId"] == job_id
        assert "Repaired" in [reason for reason, _ in world.events()]

    played(scenario)


def test_a_master_of_an_older_version_may_lack_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(client: FakeEngineClient, job_id: str) -> Any:
        raise EngineError("GET /jobs/…: 404", status=404)

    monkeypatch.setattr(FakeEngineClient, "progress", unknown)
    monkeypatch.setattr(FakeEngineClient, "exception", unknown)

    async def scenario(world: World) -> None:
        world.summaries = False
        await deployed(world)
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))
        await world.run(30)
        assert world.condition("Ready")["status"] == "True"

    played(scenario)


def test_a_job_that_keeps_failing_remains_failed_at_the_limit() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(fails_after=15)
        manifest = flinkjob()
        manifest["spec"]["recovery"] = {"maxRestarts": 2}
        world.apply(manifest)
        await world.until(lambda: stalled(world, "RestartsExhausted", "recovery.maxRestarts is 2"), within=900)
        assert operations(world).count("Recover") == 2
        assert world.status()["phase"] == "Failed"
        await world.run(900, pace=5)
        words = "restarted 2 times in a row"
        assert stalled(world, "RestartsExhausted", words), "the time that it is Failed is not held out"
        assert operations(world).count("Recover") == 2
        world.images["job:1"] = Image()
        world.edit(job={"restartNonce": 1})
        await world.until(lambda: running(world))

    played(scenario)


def test_a_job_that_runs_long_enough_resets_the_count() -> None:
    async def scenario(world: World) -> None:
        world.images["job:1"] = Image(fails_after=700)
        manifest = flinkjob()
        manifest["spec"]["recovery"] = {"maxRestarts": 1}
        world.apply(manifest)
        await world.run(3600, pace=5)
        assert operations(world).count("Recover") >= 3
        assert not world.stalled()

    played(scenario)
