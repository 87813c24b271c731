"""FlinkJobs in a FlinkCluster: start, upgrade, rescale, rollback, suspend, snapshots, deletion, and faults."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.reconcile.act import session
from penstock_operator.reconcile.presets.config_maps import ClusterPresets
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
    from collections.abc import Awaitable, Callable

    from penstock_operator.kube.cluster import Manifest

SECOND = "other"


def played(story: Callable[[World], Awaitable[None]]) -> None:
    """Run a story, and check that no record was lost or repeated, and that each job started empty at most once."""
    world = World()

    async def main() -> None:
        await story(world)

    asyncio.run(main())
    assert not world.two_masters, f"{world.two_masters[:3]}\n{world.describe()}"
    assert not world.sink.lost, f"{world.sink.lost}\n{world.describe()}"
    assert not world.sink.repeated, f"{world.sink.repeated}\n{world.describe()}"
    assert len(world.sink.empty_starts) <= len({job.name for jobs in world.sessions.values() for job in jobs.values()})


def is_running(world: World, name: str = NAME, **expected: Any) -> bool:
    status = world.status(name)
    actual = status.get("running", {})
    return world.settled(name) and status["phase"] == "Running" and expected.items() <= actual.items()


async def started(world: World, *jobs: Manifest) -> None:
    """Run a new cluster with these jobs, which are created at the same time."""
    world.apply(flinkcluster())
    for job in jobs:
        world.apply(job)
    for job in jobs:
        await world.until(lambda job=job: is_running(world, job["metadata"]["name"]))
    await world.run(25)


def in_session(world: World, number: int = 1) -> dict[str, str]:
    """Return the states of the jobs in a revision by the name of their FlinkJob, without those that have ended."""
    jobs = world.sessions.get(f"{CLUSTER_NAME}-{number}", {}).values()
    return {job.name: job.state for job in jobs if job.state not in ("FINISHED", "CANCELED", "FAILED")}


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


def job_with_source(source: dict[str, Any], **job: Any) -> Manifest:
    found = session_job(**job)
    del found["spec"]["job"]["script"]
    found["spec"]["job"] |= {"entry": "job.py", "source": source}
    return found


def test_the_session_fetches_a_program_with_its_checksum_and_its_packages() -> None:
    async def story(world: World) -> None:
        world.served = {"https://host/v1.zip": "job v1", "https://host/v2.zip": "job v2"}
        await started(
            world,
            job_with_source({"url": "https://host/v1.zip", "sha256": "a" * 64}, requirements=["rich==14.0"]),
        )
        assert world.fetched[0] == {
            "name": NAME,
            "url": "https://host/v1.zip",
            "sha256": "a" * 64,
            "requirements": ["rich==14.0"],
        }
        world.edit(job={"source": {"url": "https://host/v2.zip", "sha256": "b" * 64}})
        await world.until(lambda: running(world, generation=2))
        assert len(world.savepoints) == 1

    played(story)


def test_the_session_fetches_a_commit_with_the_password_of_the_secret() -> None:
    def secret(world: World, **texts: str) -> None:
        data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        meta = {"name": "git", "namespace": "default"}
        world.cluster.put({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})

    async def story(world: World) -> None:
        world.served = {"https://host/git": "job v1"}
        secret(world, password="hunter-7")
        world.apply(flinkcluster())
        git = {"url": "https://host/git", "commit": "c" * 40, "path": "jobs", "secretName": "git"}
        world.apply(job_with_source({"git": git}))
        await world.until(lambda: "no username and password" in world.condition("Stalled").get("message", ""))
        secret(world, username="me", password="hunter-7")
        world.edit(job={"restartNonce": 1})
        await world.until(lambda: running(world))
        expected = {
            "url": "https://host/git",
            "commit": "c" * 40,
            "path": "jobs",
            "username": "me",
            "password": "hunter-7",
        }
        assert expected.items() <= world.fetched[0].items()
        kept = [world.cluster.select(kind, None, {}) for kind in ("ConfigMap", "ControllerRevision", "FlinkJob")]
        assert "hunter-7" not in str(kept)

    played(story)


def test_a_program_that_cannot_be_fetched_is_reported_and_an_edit_helps() -> None:
    async def story(world: World) -> None:
        world.served = {"https://host/v1.zip": "job v1"}
        world.apply(flinkcluster())
        world.apply(job_with_source({"url": "https://host/missing.zip", "sha256": "a" * 64}))
        await world.until(lambda: "missing.zip returned 404" in world.condition("Stalled").get("message", ""))
        world.edit(job={"source": {"url": "https://host/v1.zip", "sha256": "a" * 64}})
        await world.until(lambda: running(world))

    played(story)


def test_a_program_in_an_image_is_refused_with_the_remedy() -> None:
    async def story(world: World) -> None:
        world.apply(flinkcluster())
        world.apply(job_with_source({"image": f"host/program@sha256:{'a' * 64}"}))
        await world.until(lambda: world.condition("Stalled").get("reason") == "InvalidSpec")
        assert "Set source.url or source.git instead" in world.condition("Stalled")["message"]

    played(story)


def test_defaults_of_the_configuration_apply_except_keys_of_the_cluster() -> None:
    async def story(world: World) -> None:
        world.ports = replace(world.ports, presets=ClusterPresets(world.cluster, "default", world.ports.monotonic))
        preset: dict[str, Any] = {
            "configuration": {
                "execution.checkpointing.timeout": "3m",
                "execution.checkpointing.interval": "1m",
                "execution.checkpointing.min-pause": "4s",
                "taskmanager.numberOfTaskSlots": 9,
            },
            "podTemplate": {"spec": {"hostname": "x"}},
            "worker": {"resources": {"limits": {"memory": "9Gi"}}},
        }
        meta = {"name": "flinkjob-defaults", "namespace": "default"}
        world.cluster.put(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"spec": json.dumps(preset)}}
        )
        world.apply(flinkcluster(configuration={"execution.checkpointing.min-pause": "2s"}))
        world.apply(session_job())
        await world.until(lambda: is_running(world))
        sent = world.submitted[0]["flinkConfiguration"]
        assert sent["execution.checkpointing.timeout"] == "3m"
        assert sent["execution.checkpointing.interval"] == "10s", "the FlinkJob takes precedence"
        assert sent["execution.checkpointing.min-pause"] == "2s", "the FlinkCluster takes precedence"
        assert "taskmanager.numberOfTaskSlots" not in sent
        assert world.status()["defaults"] == {
            "configuration": {
                key: preset["configuration"][key] for key in preset["configuration"] if key.startswith("execution.")
            }
        }

    played(story)


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


@pytest.mark.parametrize("mode", ["die-after", "die-before", "fail-after"])
def test_every_fault_during_an_upgrade_gives_one_job_and_exact_output(mode: Any) -> None:
    calls: list[int] = []

    async def counted(world: World) -> None:
        await started(world, session_job())
        world.fault.calls.clear()
        world.edit(job={"script": "job v2"})
        await world.until(lambda: running(world, generation=2))
        calls.append(len(world.fault.calls))

    played(counted)
    for at in range(1, calls[0] + 1):

        async def story(world: World, at: int = at) -> None:
            await started(world, session_job())
            world.fault.calls.clear()
            world.fault.at, world.fault.mode = at, mode
            world.edit(job={"script": "job v2"})
            await world.until(lambda: running(world, generation=2))
            world.fault.is_over()
            await world.run(40)
            assert running(world, generation=2), world.describe()
            assert len(world.savepoints) == 1, world.describe()
            assert in_session(world) == {NAME: "RUNNING"}

        played(story)


async def moved(world: World, dies_at: int = 0) -> int:
    """Move a job to another image of its cluster. The operator dies after one call. Return the number of its calls."""
    await started(world, session_job())
    world.fault.calls.clear()
    world.fault.at = dies_at
    world.cluster.edit("FlinkCluster", "default", CLUSTER_NAME, lambda m: m["spec"].update(image="engine:2"))
    await world.until(lambda: cluster_is_ready(world) and cluster_status(world)["revision"] == 2)
    calls = len(world.fault.calls)
    world.fault.is_over()
    await world.run(20)
    assert is_running(world, cluster="default/shared@2"), world.describe()
    assert in_session(world, 2) == {NAME: "RUNNING"}
    assert len(world.savepoints) == 1, world.describe()
    assert not pods_of(world, "shared-1", "master")
    return calls


@pytest.mark.parametrize("start", range(1, 5))
def test_the_operator_may_die_while_a_job_moves_to_another_image(start: int) -> None:
    """The deaths of the four cases are after every eighth call of the flow."""
    calls: list[int] = []

    async def undisturbed(world: World) -> None:
        calls.append(await moved(world))

    played(undisturbed)
    assert calls[0] > 30
    for at in range(2 * start, calls[0] + 1, 8):

        async def disturbed(world: World, at: int = at) -> None:
            await moved(world, at)

        played(disturbed)
