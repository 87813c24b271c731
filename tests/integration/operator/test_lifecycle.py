"""A FlinkJob's life on a real API server with real controllers; only kubelet and masters are simulated."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.kube.cluster import DEPLOYMENT, EVENT, FLINKSNAPSHOT
from tests.integration.operator.sim import NAME, Behaviour, condition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.integration.operator.sim import Site

    Play = Callable[[Callable[[Site], Awaitable[None]]], None]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


async def deployed(site: Site, **job: Any) -> None:
    site.start_operator()
    site.apply(site.manifest(**job))
    await site.until(site.running, "the first deployment is Ready")


def test_a_job_is_deployed_upgraded_rescaled_suspended_resumed_and_deleted(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await deployed(site)
        site.kubectl("wait", "fj/weather", "--for=condition=Ready", "--timeout=5s")
        await asyncio.sleep(2)

        await site.edit(image="job:2")
        await site.until(lambda: site.running(image="job:2"), "the upgrade is done")
        assert len(site.masters.savepoints) == 1

        site.kubectl("scale", "fj/weather", "--replicas=4")
        await site.until(lambda: site.running(parallelism=4), "the job is scaled up")
        site.kubectl("scale", "fj/weather", "--replicas=1")
        await site.until(lambda: site.running(parallelism=1), "the job is scaled down")
        assert len(site.masters.savepoints) == 1

        await site.edit(job={"state": "suspended"})

        async def suspended() -> bool:
            return (await site.job() or {}).get("status", {}).get("phase") == "Suspended"

        await site.until(suspended, "the job is suspended")
        await site.until(lambda: no_pods(site), "the job has no pods")
        await site.edit(job={"state": "running"})
        await site.until(site.running, "the job is resumed")
        await asyncio.sleep(2)
        assert site.masters.gaps(f"{site.namespace}/{NAME}") == []

        site.kubectl("delete", "fj/weather", "--timeout=60s")
        await site.until(lambda: nothing_left(site), "all objects of the job are gone")
        assert len(site.masters.savepoints) == 2
        assert await site.cluster.list(FLINKSNAPSHOT, site.namespace), "the savepoints must outlive their job"

    play(scenario)


def test_foreground_deletion_waits_for_the_savepoint(play: Play) -> None:
    """Kubernetes' garbage collector keeps the savepoint's dependencies, also while the operator is down. Then it removes all of them."""

    async def scenario(site: Site) -> None:
        site.start_operator()
        manifest = site.manifest()
        manifest["spec"]["deletion"] = {"savepoint": True}
        site.apply(manifest)
        await site.until(site.running, "the first deployment is Ready")
        pods = site.kubectl("get", "pods", "-o", "name")
        operator = site.operators[-1]
        operator.send_signal(signal.SIGKILL)
        operator.wait()
        site.kubectl("delete", "fj/weather", "--cascade=foreground", "--wait=false")

        async def collected() -> bool:
            job = await site.job() or {}
            return "foregroundDeletion" not in job["metadata"]["finalizers"]

        await site.until(collected, "the garbage collector has removed its finalizer")
        await asyncio.sleep(3)
        assert site.kubectl("get", "pods", "-o", "name") == pods
        assert not site.masters.savepoints
        site.start_operator()
        await site.until(lambda: nothing_left(site), "all objects of the job are gone")
        assert len(site.masters.savepoints) == 1
        assert site.masters.gaps(f"{site.namespace}/{NAME}") == []

    play(scenario)


async def no_pods(site: Site) -> bool:
    return "No resources found" in site.kubectl("get", "pods") or site.kubectl("get", "pods").strip() == ""


async def nothing_left(site: Site) -> bool:
    kinds = "deploy,rs,pods,svc,cm,secret,sa,pdb,netpol,controllerrevisions"
    names = site.kubectl("get", kinds, "-l", "penstock.dev/job=weather", "-o", "name")
    return names.strip() == ""


def test_a_bad_revision_is_rolled_back_and_the_next_edit_is_applied(play: Play) -> None:
    async def scenario(site: Site) -> None:
        site.masters.images["job:bad"] = Behaviour(checkpoints=False)
        await deployed(site)
        await site.edit(image="job:bad", rollback={"after": "20s"})
        await site.until(lambda: site.stalled("NotStable"), "the job is rolled back")
        found = await site.job() or {}
        assert found["status"]["running"]["image"] == "job:1"
        assert found["status"]["phase"] == "Running"
        await site.edit(image="job:3")
        await site.until(lambda: site.running(image="job:3"), "the next edit is applied")
        await asyncio.sleep(2)
        assert site.masters.gaps(f"{site.namespace}/{NAME}") == []

    play(scenario)


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (
            Behaviour(check={"ok": False, "problems": [{"code": "IMPORT", "message": "no module named job"}]}),
            "CheckFailed",
        ),
        (Behaviour(pulls=False), "ImagePullFailed"),
    ],
    ids=["does-not-import", "does-not-exist"],
)
def test_a_bad_image_does_not_change_the_running_job(play: Play, behaviour: Behaviour, reason: str) -> None:
    async def scenario(site: Site) -> None:
        site.masters.images["job:bad"] = behaviour
        await deployed(site)
        before = site.masters.leading(f"{site.namespace}/{NAME}")
        await site.edit(image="job:bad")
        await site.until(lambda: site.stalled(reason), f"the job is stalled with {reason}")
        await asyncio.sleep(3)
        assert site.masters.leading(f"{site.namespace}/{NAME}") is before
        assert site.masters.savepoints == []
        await site.edit(image="job:1")
        await site.until(site.running, "the job is Ready after the revert")
        assert site.masters.leading(f"{site.namespace}/{NAME}") is before

    play(scenario)


def test_the_job_recovers_if_its_objects_are_deleted(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await deployed(site)
        for thing in ("deploy/weather-worker", "svc/weather-rest", "deploy/weather-master"):
            site.kubectl("delete", thing)
            await site.until(lambda thing=thing: exists(site, thing), f"{thing} exists again")
            await site.until(site.running, "the job is Ready again")
        await asyncio.sleep(2)
        assert site.masters.gaps(f"{site.namespace}/{NAME}") == []

    play(scenario)


async def exists(site: Site, thing: str) -> bool:
    return site.kubectl("get", thing, "--ignore-not-found", "-o", "name").strip() != ""


def test_events_describe_each_step_without_floods_or_secrets(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await deployed(site)
        await site.edit(image="job:2")
        await site.until(lambda: site.running(image="job:2"), "the upgrade is done")
        events = [
            e for e in await site.cluster.list(EVENT, site.namespace) if e["involvedObject"]["kind"] == "FlinkJob"
        ]
        reasons = [e["reason"] for e in events]
        for reason in ("DeployStarted", "DeploySucceeded", "UpgradeStarted", "SavepointCompleted", "UpgradeSucceeded"):
            assert reasons.count(reason) == 1, reasons
        assert len(events) < 20
        secret = json.loads(site.kubectl("get", "secret", "weather-secrets", "-o", "json"))["data"]
        assert not any(value in json.dumps(events) for value in secret.values())

    play(scenario)


@pytest.mark.parametrize("moment", [0.3, 1.0, 1.8, 2.6, 3.4, 4.5])
def test_another_replica_completes_the_operation_of_a_killed_one(play: Play, moment: float) -> None:
    async def scenario(site: Site) -> None:
        await deployed(site)
        leader = site.operators[0]
        site.start_operator()
        await asyncio.sleep(2)
        await site.edit(image="job:2", job={"parallelism": 3})
        await asyncio.sleep(moment)
        leader.send_signal(signal.SIGKILL)
        await site.until(lambda: site.running(image="job:2", parallelism=3), "the upgrade is done")
        await asyncio.sleep(2)
        assert len(site.masters.savepoints) == 1
        assert site.masters.gaps(f"{site.namespace}/{NAME}") == []

    play(scenario)


def test_a_stopped_replica_releases_the_lease_immediately(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await deployed(site)
        site.start_operator()
        await asyncio.sleep(3)
        site.operators[0].send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(site.operators[0].wait, 15) == 0
        await site.edit(image="job:2")
        await site.until(lambda: site.running(image="job:2"), "the other replica is the leader")

    play(scenario)


def test_a_frozen_leader_does_nothing_after_it_wakes_up(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await deployed(site)
        frozen = site.operators[0]
        site.start_operator()
        await site.edit(image="job:2")
        await asyncio.sleep(0.6)
        frozen.send_signal(signal.SIGSTOP)
        await site.until(lambda: site.running(image="job:2"), "the other replica takes over")
        frozen.send_signal(signal.SIGCONT)
        assert await asyncio.to_thread(frozen.wait, 30) == 1
        await asyncio.sleep(2)
        assert await site.running(image="job:2")
        assert len(site.masters.savepoints) == 1

    play(scenario)


QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: small}
spec: {hard: {pods: "2"}}
"""


def test_a_quota_without_space_is_named_immediately_and_raising_it_is_enough(play: Play) -> None:
    async def scenario(site: Site) -> None:
        site.start_operator()
        site.kubectl("apply", "-f", "-", stdin=QUOTA)
        site.kubectl("wait", "quota/small", "--for=jsonpath={.status.hard.pods}=2", "--timeout=30s")
        site.apply(site.manifest())

        async def deployed_both() -> bool:
            return len(await site.cluster.list(DEPLOYMENT, site.namespace)) == 2

        await site.until(deployed_both, "the Deployments exist")
        await site.until(lambda: site.stalled("QuotaExceeded"), "the job is stalled", within=30)
        message = condition(await site.job() or {}, "Stalled")["message"]
        assert "exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2" in message
        assert "Raise the quota" in message
        await asyncio.sleep(5)
        events = [e for e in await site.cluster.list(EVENT, site.namespace) if e["reason"] == "QuotaExceeded"]
        assert [e["involvedObject"]["name"] for e in events] == [NAME]
        site.kubectl("delete", "quota", "small")
        site.kubectl("delete", "rs", "-l", f"penstock.dev/job={NAME}")
        await site.until(site.running, "the job starts after the quota is raised", within=80)

    play(scenario)


def test_an_invalid_spec_is_explained_and_the_job_keeps_running(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await deployed(site)
        template = {"spec": {"volumes": [{"name": "host", "hostPath": {"path": "/"}}], "serviceAccountName": "admin"}}
        await site.edit(podTemplate=template)
        await site.until(lambda: site.stalled("InvalidSpec"), "the job is stalled")
        found = await site.job() or {}
        message = condition(found, "Stalled")["message"]
        assert "spec.podTemplate.spec.volumes[0].hostPath" in message
        assert "serviceAccountName" in message
        assert found["status"]["jobState"] == "RUNNING"
        await site.edit(podTemplate={"spec": None})
        await site.until(site.running, "the job is Ready again")

    play(scenario)
