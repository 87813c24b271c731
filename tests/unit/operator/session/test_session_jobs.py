"""FlinkJobs in a FlinkCluster: start, upgrade, rescale, rollback, suspend, snapshots, and deletion."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.reconcile.act import session
from tests.unit.operator.session.session_jobs import SECOND, in_session, is_running, played, started
from tests.unit.operator.world import World, flinksnapshot
from tests.unit.operator.world.kubernetes.images import Image
from tests.unit.operator.world.kubernetes.kubelet import NAME
from tests.unit.operator.world.scenarios.scenario import running, suspended
from tests.unit.operator.world.session import (
    CLUSTER_NAME,
    FakeSessionClient,
    cluster_is_ready,
    cluster_status,
    flinkcluster,
    pods_of,
    session_job,
)

if TYPE_CHECKING:
    from penstock_operator.kube.cluster import Manifest


def test_two_jobs_of_a_fresh_cluster_both_run() -> None:
    async def story(world: World) -> None:
        await started(world, session_job(), session_job(SECOND))
        assert in_session(world) == {NAME: "RUNNING", SECOND: "RUNNING"}
        own = [p for p in world.cluster.select("Pod", None, {}) if "penstock.dev/job" in p["metadata"]["labels"]]
        assert not own, "the jobs have no pods"
        assert world.status()["running"]["cluster"] == "default/shared@1"
        assert cluster_status(world)["jobs"] == 2
        assert (cluster_status(world)["slots"], cluster_status(world)["freeSlots"]) == (4, 2)

    played(story)


def test_an_edit_upgrades_one_job_through_a_savepoint() -> None:
    async def story(world: World) -> None:
        await started(world, session_job(), session_job(SECOND))
        before = world.status(SECOND)["jobId"]
        world.edit(job={"script": "job v2"})
        await world.until(lambda: running(world, generation=2))
        assert len(world.savepoints) == 1
        assert world.status()["running"]["restoredFrom"]["path"] == world.savepoints[0]
        assert world.status(SECOND)["jobId"] == before
        assert in_session(world) == {NAME: "RUNNING", SECOND: "RUNNING"}

    played(story)


def test_another_parallelism_rescales_live() -> None:
    async def story(world: World) -> None:
        await started(world, session_job())
        before = world.status()["jobId"]
        world.edit(job={"parallelism": 3})
        await world.until(lambda: running(world, parallelism=3))
        assert (world.rescales, world.savepoints, world.status()["jobId"]) == ([3], [], before)

    played(story)


def test_a_rescale_without_free_slots_waits_for_more_workers_and_says_so() -> None:
    async def story(world: World) -> None:
        await started(world, session_job(), session_job(SECOND))
        world.edit(job={"parallelism": 4})
        await world.until(lambda: "waiting for slots: 3 of 4" in world.status().get("message", ""))
        world.cluster.edit("FlinkCluster", "default", CLUSTER_NAME, lambda m: m["spec"]["worker"].update(replicas=3))
        await world.until(lambda: running(world, parallelism=4))

    played(story)


def test_a_program_that_does_not_start_is_rolled_back() -> None:
    async def story(world: World) -> None:
        world.images["broken"] = Image(starts=False)
        await started(world, session_job())
        world.edit(job={"script": "broken"})
        await world.until(lambda: "rejected" in world.status() and is_running_again(world))
        assert "the program raises ValueError" in world.status()["rejected"]["message"]

    def is_running_again(world: World) -> bool:
        return "operation" not in world.status() and in_session(world) == {NAME: "RUNNING"}

    played(story)


def test_a_first_program_that_does_not_start_is_reported_and_an_edit_helps() -> None:
    async def story(world: World) -> None:
        world.images["broken"] = Image(starts=False)
        world.apply(flinkcluster())
        world.apply(session_job(script="broken"))
        await world.until(lambda: "the program raises ValueError" in world.condition("Stalled").get("message", ""))
        world.edit(job={"script": "job v1"})
        await world.until(lambda: running(world))

    played(story)


@pytest.mark.parametrize("change", ["edit", "delete"])
def test_a_change_during_a_long_start_leaves_no_second_program(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "START_PATIENCE", 0.01)

    async def story(world: World) -> None:
        answers, start = asyncio.Event(), FakeSessionClient.run

        async def slow(client: FakeSessionClient, program: str, body: dict[str, Any]) -> None:
            if program.endswith(f"_{NAME}.zip"):
                await answers.wait()
            await start(client, program, body)

        monkeypatch.setattr(FakeSessionClient, "run", slow)
        world.apply(flinkcluster())
        world.apply(session_job())
        await world.until(lambda: any(name.endswith(f"_{NAME}.zip") for name in world.uploads))
        await world.run(3)
        if change == "edit":
            world.edit(job={"script": "job v2"})
        else:
            world.delete()
        await world.run(20)
        answers.set()
        if change == "edit":
            await world.until(lambda: running(world, generation=2))
        else:
            await world.until(lambda: world.cluster.one("FlinkJob", NAME) is None)
        await world.run(20)
        states = sorted(job.state for job in world.sessions["shared-1"].values())
        assert states.count("RUNNING") == (change == "edit"), states

    asyncio.run(story(World()))


@pytest.mark.parametrize("change", ["edit", "delete"])
def test_a_new_operator_ends_a_program_that_starts_for_the_former_operator(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "START_PATIENCE", 0.01)

    async def story(world: World) -> None:
        answers, start = asyncio.Event(), FakeSessionClient.run
        late: list[str] = []

        async def slow(client: FakeSessionClient, program: str, body: dict[str, Any]) -> None:
            job_id = body["jobId"]
            if not late:
                late.append(job_id)
                world.starting.add(job_id)
                await answers.wait()
                if job_id not in world.starting:  # it was cancelled
                    return
                world.starting.discard(job_id)
            await start(client, program, body)

        monkeypatch.setattr(FakeSessionClient, "run", slow)
        world.apply(flinkcluster())
        world.apply(session_job())
        await world.until(lambda: bool(late))
        world.restart_operator()
        if change == "edit":
            world.edit(job={"script": "job v2"})
        else:
            world.delete()
        await world.until(lambda: not world.starting)
        answers.set()
        await world.run(20)
        if change == "edit":
            await world.until(lambda: running(world, generation=2))
        else:
            await world.until(lambda: world.cluster.one("FlinkJob", NAME) is None)
        states = [job.state for job in world.sessions.get("shared-1", {}).values()]
        assert states.count("RUNNING") == (change == "edit"), states

    asyncio.run(story(World()))


def test_suspend_and_resume() -> None:
    async def story(world: World) -> None:
        await started(world, session_job())
        world.edit(job={"state": "suspended"})
        await world.until(lambda: suspended(world))
        assert in_session(world) == {}
        world.edit(job={"state": "running"})
        await world.until(lambda: running(world))
        assert len(world.savepoints) == 1

    played(story)


def test_a_flinksnapshot_takes_a_savepoint_of_the_job() -> None:
    async def story(world: World) -> None:
        await started(world, session_job(), session_job(SECOND))
        world.apply(flinksnapshot("mine"))
        await world.until(lambda: world.snapshots().get("mine", {}).get("state") == "Completed")
        assert world.snapshots()["mine"]["jobId"] == world.status()["jobId"]

    played(story)


def test_a_deletion_takes_a_savepoint_and_removes_the_program() -> None:
    async def story(world: World) -> None:
        job = session_job()
        job["spec"]["deletion"] = {"savepoint": True}
        await started(world, job, session_job(SECOND))
        world.delete()
        await world.until(lambda: world.cluster.one("FlinkJob", NAME) is None)
        assert len(world.savepoints) == 1
        assert in_session(world) == {SECOND: "RUNNING"}
        await world.until(lambda: not world.cluster.select("ConfigMap", None, {"penstock.dev/job": NAME}))

    played(story)


def test_a_deletion_without_a_response_of_the_session_ends_after_its_timeout_and_fences_the_job() -> None:
    async def story(world: World) -> None:
        await started(world, session_job())
        job_id = world.status()["jobId"]
        world.rest_down = True
        world.delete()
        await world.run(120)
        assert "nobody answers" in world.condition("Stalled")["message"]
        await world.until(lambda: world.cluster.one("FlinkJob", NAME) is None)
        assert f"storage fence {job_id}" in world.fault.calls
        assert any(
            reason == "PodsAbandoned" and f"{job_id} could not be cancelled" in t for reason, t in world.events()
        )
        world.rest_down = False
        await world.run(30)
        assert world.sessions["shared-1"][job_id].state == "SUSPENDED", "it can write nothing any more"

    played(story)


def test_a_job_continues_after_the_master_of_the_session_was_lost() -> None:
    async def story(world: World) -> None:
        await started(world, session_job())
        before = world.status()["jobId"]
        world.cluster.drop("Pod", "default", pods_of(world, "shared-1", "master")[0]["metadata"]["name"])
        await world.run(30)
        await world.until(lambda: running(world))
        assert world.status()["jobId"] == before

    played(story)


def test_a_job_that_the_session_has_lost_is_started_again_from_its_newest_checkpoint() -> None:
    async def story(world: World) -> None:
        await started(world, session_job())
        world.sessions["shared-1"].clear()
        await world.run(20)
        await world.until(lambda: running(world) and in_session(world) == {NAME: "RUNNING"})

    played(story)


def test_a_deleted_record_is_written_again() -> None:
    async def story(world: World) -> None:
        await started(world, session_job())
        world.cluster.remove("ConfigMap", "default", f"{NAME}-submission")
        await world.run(700, pace=5)
        assert world.cluster.one("ConfigMap", f"{NAME}-submission") is not None
        assert running(world)

    played(story)


def test_a_lost_status_adopts_the_running_job() -> None:
    async def story(world: World) -> None:
        await started(world, session_job())
        before = world.status()["jobId"]
        world.cluster.edit("FlinkJob", "default", NAME, lambda m: m.update(status={}))
        world.restart_operator()
        await world.until(lambda: running(world))
        assert world.status()["jobId"] == before

    played(story)


def test_another_image_of_the_cluster_moves_its_jobs_one_after_another() -> None:
    async def story(world: World) -> None:
        await started(world, session_job(), session_job(SECOND))
        world.cluster.edit("FlinkCluster", "default", CLUSTER_NAME, lambda m: m["spec"].update(image="engine:2"))
        busy: list[int] = []

        def moved() -> bool:
            busy.append(sum("operation" in world.status(name) for name in (NAME, SECOND)))
            return cluster_is_ready(world) and cluster_status(world)["revision"] == 2

        await world.until(moved)
        assert max(busy) == 1, "one job moves at a time"
        assert in_session(world, 2) == {NAME: "RUNNING", SECOND: "RUNNING"}
        assert not pods_of(world, "shared-1", "master")
        assert len(world.savepoints) == 2
        events = [text for reason, text in world.events() if reason == "JobMoves"]
        assert len(events) == 2
        assert world.status()["running"]["image"] == "engine:2"

    played(story)


def test_a_job_that_cannot_move_keeps_running_and_the_cluster_names_it() -> None:
    async def story(world: World) -> None:
        await started(world, session_job(), session_job(SECOND))
        world.images["engine:2"] = Image(check={"ok": False, "problems": [{"code": "X", "message": "no numpy"}]})
        world.cluster.edit("FlinkCluster", "default", CLUSTER_NAME, lambda m: m["spec"].update(image="engine:2"))
        await world.until(lambda: len(cluster_status(world).get("notMoved", ())) == 2)
        assert in_session(world) == {NAME: "RUNNING", SECOND: "RUNNING"}
        assert "no numpy" in cluster_status(world)["message"]
        assert pods_of(world, "shared-1", "master")
        world.images["engine:2"] = Image()
        for name in (NAME, SECOND):
            world.edit(name, job={"restartNonce": 1})
        await world.until(lambda: cluster_is_ready(world) and not pods_of(world, "shared-1", "master"))

    played(story)


def test_a_job_that_does_not_start_to_move_lets_the_other_jobs_move() -> None:
    async def story(world: World) -> None:
        await started(world, session_job(), session_job(SECOND))
        first, second = sorted((NAME, SECOND))
        world.edit(first, worker={"slots": 3})
        world.cluster.edit("FlinkCluster", "default", CLUSTER_NAME, lambda m: m["spec"].update(image="engine:2"))
        await world.run(900, pace=5)
        assert in_session(world) == {first: "RUNNING"}
        assert in_session(world, 2) == {second: "RUNNING"}
        assert "its move has not started within 10 minutes: spec.worker" in cluster_status(world)["message"]
        world.cluster.edit("FlinkJob", "default", first, lambda m: m["spec"].pop("worker"))
        await world.until(lambda: cluster_is_ready(world) and is_running(world, first, cluster="default/shared@2"))

    played(story)


@pytest.mark.parametrize("content", ["default/foreign@1", None])
def test_a_changed_record_does_not_cancel_a_job_of_another_cluster(content: str | None) -> None:
    async def story(world: World) -> None:
        world.apply(flinkcluster("foreign"))
        await started(world, session_job(), session_job(SECOND, cluster="foreign"))
        victim = world.status(SECOND)["jobId"]

        def forge(record: Manifest) -> None:
            record["metadata"]["annotations"]["penstock.dev/incarnation"] = victim
            record["data"] |= {"cluster": content} if content else {"start": "no JSON"}

        world.cluster.edit("ConfigMap", "default", f"{NAME}-submission", forge)
        world.edit(job={"state": "suspended"})
        await world.until(lambda: suspended(world))
        await world.run(20)
        assert not [call for call in world.fault.calls if call == f"rest cancel {victim}"]
        assert in_session(world) == {}
        assert {job.state for job in world.sessions["foreign-1"].values()} == {"RUNNING"}

    played(story)


@pytest.mark.parametrize("policy", ["Wait", "Suspend", "Force"])
def test_the_deletion_of_a_cluster_with_a_job(policy: str) -> None:
    async def story(world: World) -> None:
        await started(world, session_job())
        world.cluster.edit(
            "FlinkCluster", "default", CLUSTER_NAME, lambda m: m["spec"].update(deletion={"jobs": policy})
        )
        world.cluster.remove("FlinkCluster", "default", CLUSTER_NAME)
        if policy == "Wait":
            await world.run(60)
            assert in_session(world) == {NAME: "RUNNING"}
            assert "default/weather" in cluster_status(world)["message"]
            assert any(reason == "DeletionWaits" and "default/weather" in text for reason, text in world.events())
            world.delete()
        await world.until(lambda: world.cluster.one("FlinkCluster", CLUSTER_NAME) is None)
        assert not world.cluster.select("Deployment", None, {})
        if policy == "Wait":
            return
        assert len(world.savepoints) == (policy == "Suspend")
        await world.run(30)
        assert "does not exist" in world.condition("Stalled")["message"]
        world.apply(flinkcluster(image="engine:3"))
        await world.until(lambda: running(world))
        await world.run(20)

    played(story)


def test_the_deletion_of_a_cluster_suspends_a_job_whose_spec_is_refused() -> None:
    async def story(world: World) -> None:
        await started(world, session_job())
        world.edit(worker={"slots": 3})
        await world.until(lambda: world.condition("Stalled").get("reason") == "InvalidSpec")
        change = {"deletion": {"jobs": "Suspend"}}
        world.cluster.edit("FlinkCluster", "default", CLUSTER_NAME, lambda m: m["spec"].update(change))
        world.cluster.remove("FlinkCluster", "default", CLUSTER_NAME)
        await world.until(lambda: world.cluster.one("FlinkCluster", CLUSTER_NAME) is None)
        assert len(world.savepoints) == 1

    played(story)


def test_fields_of_the_cluster_are_refused_with_their_remedy() -> None:
    async def story(world: World) -> None:
        world.apply(flinkcluster())
        job = session_job()
        job["spec"] |= {"worker": {"slots": 2}, "podTemplate": {"spec": {"hostname": "x"}}}
        world.apply(job)
        await world.until(lambda: world.condition("Stalled").get("reason") == "InvalidSpec")
        message = world.condition("Stalled")["message"]
        for field in ("worker", "podTemplate"):
            assert f"spec.{field}: this field belongs to the FlinkCluster" in message
            assert f"set spec.{field} of the FlinkCluster" in message

    played(story)
