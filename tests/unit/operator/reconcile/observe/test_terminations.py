"""The end of a container is reported with cause, limit and remedy, and remains reported after its pod is gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock_operator.api.types import format_time
from penstock_operator.reconcile.core import decide
from penstock_operator.reconcile.decide.context import Context
from penstock_operator.reconcile.decide.health.causes import PODS_GONE, restarts_of, with_terminations
from penstock_operator.reconcile.observation import Pod, Terminated, Trouble
from penstock_operator.reconcile.observe.manifests import pod as read_pod
from penstock_operator.reconcile.report.writes import weighty
from tests.unit.operator.contexts import (
    ago,
    engine,
    make_context,
    make_op,
    make_running,
    make_spec,
    pod,
    stored,
    up,
)
from tests.unit.operator.world import World, flinkjob
from tests.unit.operator.world.kubernetes.images import Image
from tests.unit.operator.world.scenarios.scenario import running
from tests.unit.operator.world.world import NAME

REMEDY = "Raise spec.worker.resources.limits.memory"


def small(**job: Any) -> dict[str, Any]:
    """Return a FlinkJob whose workers have a memory limit and little time to become stable."""
    manifest = flinkjob(**job)
    manifest["spec"]["worker"] = {"resources": {"limits": {"memory": "256Mi"}}}
    manifest["spec"]["rollback"] = {"after": "60s"}
    return manifest


def reported(world: World, reason: str) -> list[str]:
    return [message for found, message in world.events() if found == reason]


def names_the_cause(text: str) -> bool:
    return all(word in text for word in ("penstock", "worker", "OOMKilled", "137", "256Mi", REMEDY))


class Killer:
    """A killer of worker containers. It kills one whenever all are up, up to a maximum number of times."""

    def __init__(self, world: World, times: int = 1000, role: str = "worker") -> None:
        self.world, self.left, self.role = world, times, role

    async def __call__(self) -> None:
        if self.left and self.world.kill_container(self.role):
            self.left -= 1


def test_a_deployment_killed_for_memory_is_reported_in_condition_event_and_column() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(small())
        await world.until(lambda: world.stalled(), also=Killer(world))
        stalled = world.condition("Stalled")
        assert stalled["reason"] == "DeployFailed"
        assert names_the_cause(stalled["message"]), stalled
        assert names_the_cause(reported(world, "OOMKilled")[0])
        assert names_the_cause(reported(world, "DeployFailed")[0])
        await world.run(61)
        assert world.status()["restarts"] >= 4
        assert world.status()["lastTermination"]["count"] >= 4

    asyncio.run(scenario())


def test_a_rejected_revision_names_its_killed_container_although_its_pods_are_gone() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(small())
        await world.until(lambda: running(world))
        await world.run(25)
        world.edit(image="job:2")
        await world.until(lambda: (world.status().get("operation") or {}).get("step") == "Watch")
        killer = Killer(world)

        async def replaced_as_well() -> None:
            if world.status().get("running", {}).get("image") == "job:2":
                await killer()
                if world.status().get("lastTermination") and killer.left > 990:
                    world.kill_pod("worker")

        await world.until(lambda: "rejected" in world.status() and world.stalled(), also=replaced_as_well)
        assert names_the_cause(world.status()["rejected"]["message"]), world.status()["rejected"]
        assert names_the_cause(world.condition("Stalled")["message"])
        assert names_the_cause(reported(world, "RollbackStarted")[0])
        assert world.status()["running"]["image"] == "job:1"

    asyncio.run(scenario())


def test_a_running_job_that_lost_a_worker_to_memory_keeps_the_cause_in_its_conditions() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(small())
        await world.until(lambda: running(world))
        await world.run(25)
        killer = Killer(world, times=1)
        await world.until(lambda: world.condition("Running").get("status") == "False", also=killer)
        assert names_the_cause(world.condition("Running")["message"])
        assert names_the_cause(world.condition("Ready")["message"])
        world.kill_pod("worker")
        await world.until(lambda: running(world))
        assert names_the_cause(world.condition("Running")["message"]), "it is known also with its pod gone"
        assert len(reported(world, "OOMKilled")) == 1
        await world.run(90)
        assert world.status()["restarts"] == 1
        assert len(reported(world, "OOMKilled")) == 1, "once, however often it is looked at"

    asyncio.run(scenario())


def test_repeated_kills_are_reported_less_and_less_often() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(small())
        await world.run(600, also=Killer(world), pace=5)
        count = world.status()["lastTermination"]["count"]
        assert count > 32
        assert len(reported(world, "OOMKilled")) == count.bit_length()

    asyncio.run(scenario())


def test_the_next_incarnation_resets_the_count() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(small())
        await world.until(lambda: running(world))
        await world.run(25)
        await world.run(30, also=Killer(world, times=2))
        await world.until(lambda: running(world))
        assert world.status()["restarts"] == 2
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))
        assert world.status()["restarts"] == 0
        assert world.condition("Running").get("message", "") == ""

    asyncio.run(scenario())


async def kills(world: World, role: str, times: int) -> None:
    """Kill containers this number of times, one at a time, each observed before the next."""
    for _ in range(times):
        await world.until(lambda: running(world))
        await world.run(20)
        assert world.kill_container(role)
        await world.run(20)
    await world.until(lambda: running(world))
    await world.run(61)


@pytest.mark.parametrize("role", ["worker", "master"])
def test_a_pod_that_is_deleted_keeps_its_restarts_in_the_count(role: str) -> None:
    async def scenario() -> None:
        world = World()
        world.apply(small())
        await kills(world, role, 2)
        assert world.status()["restarts"] == 2
        world.kill_pod(role)
        await world.until(lambda: running(world))
        await world.run(61)
        before = world.status()["restarts"]
        assert before >= 2
        await kills(world, role, 1)
        assert world.status()["restarts"] == before + 1, "the new pod counts from the beginning"

    asyncio.run(scenario())


def test_failovers_reported_by_a_former_master_are_kept() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(small())
        await kills(world, "worker", 2)
        world.kill_pod("master")
        await kills(world, "worker", 1)
        assert world.status()["restarts"] == 3
        assert world.status()["running"]["jobId"] == world.status()["ends"]["jobId"]

    asyncio.run(scenario())


def test_counters_are_summed_for_any_observations() -> None:
    """A pod reappears after it was gone, the engine is silent, or a container restarts twice between two polls."""

    def look(ctx: Context, *pods: Pod, failovers: int | None) -> Context:
        reported = engine(None) if failovers is None else engine(restarts=failovers)
        return with_terminations(replace(ctx, seen=up(pods=pods, engine=reported)))

    def seen(restarts: int, name: str = "m1", role: str = "master") -> Pod:
        return pod(role, name=name, restarts=restarts, created=ago(100 - int(name[1:])))

    ctx = make_context()
    counts = []
    for pods, failovers in (
        ((seen(0), seen(0, "w1", "worker")), 0),
        ((seen(0), seen(2, "w1", "worker")), 2),
        ((seen(0), seen(2, "w1", "worker")), None),
        ((seen(0), seen(0, "w2", "worker")), 3),
        ((seen(0), seen(2, "w1", "worker"), seen(1, "w2", "worker")), 3),
        ((seen(1),), None),
        ((seen(1),), 1),
        ((seen(0, "m2"),), 1),
        ((seen(2, "m2"),), 0),
        ((seen(2, "m2"),), 4),
    ):
        ctx = look(ctx, *pods, failovers=failovers)
        counts.append(restarts_of(ctx, make_running()))
    assert counts == [0, 2, 2, 3, 3, 4, 5, 6, 8, 12]


def test_a_job_that_was_never_restarted_has_no_record() -> None:
    ctx = make_context()
    assert with_terminations(ctx) is ctx


def test_a_failover_alone_does_not_cause_an_immediate_write() -> None:
    ctx = make_context()
    reported = with_terminations(replace(ctx, seen=up(engine=engine(restarts=1))))
    assert reported.status.ends is not None
    assert weighty(reported.status) == weighty(ctx.status)


def test_a_killed_master_counts_even_while_it_does_not_answer() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(small())
        await world.until(lambda: running(world))
        await world.run(25)
        world.images["job:1"] = Image(starts=False)
        world.crash_master()
        await world.run(90)
        assert world.status()["restarts"] >= 3
        assert "the master refuses to start" in reported(world, "ContainerFailed")[0]

    asyncio.run(scenario())


def test_a_master_that_keeps_ending_is_rejected_with_the_cause_of_its_end() -> None:
    trouble = Trouble("OOMKilled", "container penstock of worker w ended: OOMKilled, memory limit 160Mi", REMEDY)
    killed = Terminated("w", "worker", "penstock", trouble, at=ago(5))
    pods = (pod(restarts=3, ready=False, last_end="Error, exit code 3"), pod("worker", terminations=(killed,)))
    seen = up(engine=engine(None), pods=pods, storage=stored(None))
    running = make_running(stable=False, had_checkpoint=False)
    op = make_op("Deploy", "Watch", deadline=ago(-60), looked_back=True)
    status = decide(make_context(make_spec(), seen=seen, running=running, operation=op, stable_revision=None)).status
    stalled = status.condition("Stalled")
    assert stalled is not None
    assert stalled.message.startswith("container penstock of worker w ended: OOMKilled")
    assert "restarted 3 times (last: Error, exit code 3)" in stalled.message


def terminated(role: str = "worker", **changes: Any) -> dict[str, Any]:
    """Return a pod whose container was terminated and runs again."""
    ended = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T12:00:00Z", **changes.pop("ended", {})}
    container = {"name": "penstock", "restartCount": 1, "state": {"running": {}}, "lastState": {"terminated": ended}}
    container |= changes.pop("status", {})
    limits = changes.pop("limits", {"memory": "256Mi"})
    return {
        "metadata": {"name": "p", "labels": {"penstock.dev/role": role}, **changes.pop("metadata", {})},
        "spec": {"containers": [{"name": container["name"], "resources": {"limits": limits}}]},
        "status": {"phase": "Running", "containerStatuses": [container], **changes},
    }


@pytest.mark.parametrize(
    ("manifest", "reason", "words"),
    [
        (terminated(), "OOMKilled", "memory limit 256Mi"),
        (terminated("master"), "OOMKilled", "Raise spec.master.resources.limits.memory"),
        (terminated(limits={}), "OOMKilled", "no memory limit"),
        (terminated(limits={"memory": "0"}), "OOMKilled", "no memory limit"),
        (terminated(limits={}), "OOMKilled", "spec.worker.resources.requests.memory"),
        (terminated(status={"name": "sidecar"}), "OOMKilled", "container sidecar in spec.worker.podTemplate"),
        (terminated(ended={"reason": "Error", "exitCode": 1, "message": "boom"}), "ContainerFailed", "boom"),
        (terminated(ended={"reason": "Error", "exitCode": 137}), "ContainerFailed", "SIGKILL"),
        (terminated(ended={"reason": "Error", "exitCode": 139}), "ContainerFailed", "SIGSEGV"),
        (terminated(ended={"reason": "Error", "exitCode": 0, "signal": 9}), "ContainerFailed", "SIGKILL"),
    ],
)
def test_the_end_of_a_container_is_described_with_a_remedy(manifest: dict[str, Any], reason: str, words: str) -> None:
    (found,) = read_pod(manifest).terminations
    assert found.trouble.reason == reason
    assert words in str(found.trouble)


@pytest.mark.parametrize(
    "manifest",
    [
        terminated(ended={"exitCode": 0, "reason": "Completed"}),
        terminated(ended={"exitCode": 75, "reason": "Error"}),
        terminated(
            status={"lastState": {}, "state": {"terminated": {"exitCode": 143, "reason": "Error"}}},
            metadata={"name": "p", "deletionTimestamp": "2026-01-01T12:00:00Z"},
        ),
    ],
    ids=["completed", "fenced, which is told as that", "stopped"],
)
def test_a_normal_exit_is_not_reported(manifest: dict[str, Any]) -> None:
    assert read_pod(manifest).terminations == ()


def test_an_evicted_pod_names_the_resource() -> None:
    text = "The node was low on resource: ephemeral-storage. Container penstock was using 5Gi, request is 0."
    manifest = terminated(phase="Failed", reason="Evicted", message=text)
    manifest["status"]["containerStatuses"] = []
    (found,) = read_pod(manifest).terminations
    assert (found.trouble.reason, "ephemeral-storage" in found.trouble.remedy) == ("Evicted", True)


def test_an_eviction_is_reported_with_its_cause() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(small())
        await world.until(lambda: running(world))
        await world.run(25)
        world.evict("worker")
        await world.run(5)
        assert "The node was low on resource: memory" in reported(world, "Evicted")[0]
        assert "requests.memory" in reported(world, "Evicted")[0]
        await world.until(lambda: running(world))
        assert world.status(NAME)["lastTermination"]["reason"] == "Evicted"

    asyncio.run(scenario())


# --- observed in another order than it happened -----------------------------------------------------------------------


def end(world: World, name: str, reason: str, code: int, at: datetime | None) -> None:
    """Let a container of a pod end at this time, and run again."""

    def change(manifest: dict[str, Any]) -> None:
        own = manifest["status"]["containerStatuses"][0]
        own["lastState"] = {"terminated": {"reason": reason, "exitCode": code, "finishedAt": at and format_time(at)}}
        own["restartCount"] = own.get("restartCount", 0) + 1

    world.cluster.edit("Pod", "default", name, change)


def workers(world: World) -> list[str]:
    pods = world.cluster.select("Pod", None, {"penstock.dev/role": "worker"})
    return sorted(pod["metadata"]["name"] for pod in pods)


async def stands(world: World) -> tuple[str, str]:
    world.apply(small())
    await world.until(lambda: running(world))
    await world.run(25)
    one, two = workers(world)
    return one, two


@pytest.mark.parametrize("killed_first_seen", [True, False])
@pytest.mark.parametrize("apart", [0, 1, -1], ids=["in one second", "a second later", "clocks that differ"])
def test_a_kill_is_shown_although_its_consequences_were_observed_first(killed_first_seen: bool, apart: int) -> None:
    async def scenario() -> None:
        world = World()
        one, two = await stands(world)
        killed, followed = world.time, world.time + timedelta(seconds=apart)
        world.tick(1)
        steps = [(one, "OOMKilled", 137, killed), (two, "Error", 1, followed)]
        for step in steps if killed_first_seen else steps[::-1]:
            end(world, *step)
            await world.run(3)
        await world.run(60)
        assert len(reported(world, "OOMKilled")) == 1
        assert len(reported(world, "ContainerFailed")) == 1
        assert world.status()["lastTermination"]["reason"] == "OOMKilled"
        assert world.status()["lastTermination"]["pod"] == one

    asyncio.run(scenario())


def test_a_late_report_of_a_node_is_reported_and_counted_but_not_shown_as_the_last() -> None:
    async def scenario() -> None:
        world = World()
        one, two = await stands(world)
        before = world.time
        await world.run(120)
        end(world, two, "Error", 1, world.time)
        await world.run(5)
        end(world, one, "OOMKilled", 137, before)
        await world.run(60)
        assert len(reported(world, "OOMKilled")) == 1
        assert world.status()["lastTermination"]["pod"] == two

    asyncio.run(scenario())


def test_all_containers_that_end_in_one_second_are_counted() -> None:
    async def scenario() -> None:
        world = World()
        pods, at = await stands(world), world.time
        for name in reversed(pods):
            end(world, name, "OOMKilled", 137, at)
            await world.run(3)
        await world.run(60)
        assert world.status()["lastTermination"]["count"] == 2

    asyncio.run(scenario())


def test_a_container_that_is_killed_repeatedly_together_with_another_floods_no_log() -> None:
    async def scenario() -> None:
        world = World()
        one, two = await stands(world)
        for _ in range(32):
            end(world, one, "OOMKilled", 137, world.time)
            end(world, two, "Error", 1, world.time)
            await world.run(10)
        assert world.status()["lastTermination"]["count"] == 32
        assert world.status()["lastTermination"]["reason"] == "OOMKilled"
        assert [len(reported(world, reason)) for reason in ("OOMKilled", "ContainerFailed")] == [6, 6]

    asyncio.run(scenario())


def test_an_end_without_a_time_is_reported_once() -> None:
    async def scenario() -> None:
        world = World()
        one, two = await stands(world)
        end(world, two, "Error", 1, world.time)
        await world.run(5)
        end(world, one, "ContainerStatusUnknown", 137, None)
        await world.run(120)
        assert len(reported(world, "ContainerFailed")) == 2
        assert world.status()["lastTermination"]["pod"] == one
        assert world.status()["lastTermination"]["count"] == 2

    asyncio.run(scenario())


def test_an_evicted_pod_without_container_statuses_is_reported_when_it_is_observed() -> None:
    async def scenario() -> None:
        world = World()
        one, two = await stands(world)
        end(world, two, "Error", 1, world.time)
        await world.run(5)
        failed = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
        world.cluster.edit("Pod", "default", one, lambda m: m.update(status=failed))
        await world.run(60)
        assert len(reported(world, "Evicted")) == 1
        last = world.status()["lastTermination"]
        assert last["reason"] == "Evicted"
        assert last["time"] > "2026-01-01T12:00:30Z", "not when it was created"

    asyncio.run(scenario())


def test_an_eviction_has_the_time_that_kubernetes_reports() -> None:
    manifest = terminated(phase="Failed", reason="Evicted", message="low on resource: memory", containerStatuses=[])
    manifest["status"]["conditions"] = [{"type": "DisruptionTarget", "lastTransitionTime": "2026-01-01T12:34:56Z"}]
    (found,) = read_pod(manifest).terminations
    assert found.at == datetime(2026, 1, 1, 12, 34, 56, tzinfo=UTC)


def test_the_memory_of_deleted_pods_is_bounded() -> None:
    trouble = Trouble("Evicted", "w was ended by Kubernetes", "")
    status: dict[str, Any] = {}
    for number in range(3 * PODS_GONE):
        gone = Terminated(f"w-{number}", "worker", "", trouble, at=ago(1000 - number))
        seen = up(pods=(pod(), pod("worker", terminations=(gone,))))
        ctx = with_terminations(make_context(make_spec(), seen=seen, **status))
        status = {"ends": ctx.status.ends, "last_termination": ctx.status.last_termination}
    assert status["last_termination"].count == 3 * PODS_GONE
    assert len(status["ends"].counted) <= PODS_GONE + 1
