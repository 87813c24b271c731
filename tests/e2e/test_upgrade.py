"""Another revision: proved, started from a savepoint, watched; refused, or taken back, when it is no good."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e import images
from tests.e2e.stack import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.flinkjob import Job
    from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(900, func_only=True)]

GOAL = 45.0


@pytest.fixture
def job(deploy: Callable[..., Job]) -> Job:
    """Running its first revision."""
    job = deploy("upgraded").running()
    job.goes_on()
    return job


def test_image_then_arguments(stack: Stack, job: Job) -> None:
    before = job.status
    began = time.time()
    job.patch(image=images.BETTER)
    job.running()
    job.goes_on()
    job.measure("upgrade of the image", began, goal=GOAL)
    after = job.status
    assert after["jobId"] != before["jobId"]
    assert after["running"]["image"] == images.BETTER
    restored = after["running"]["restoredFrom"]
    assert restored["kind"] == "Savepoint"
    assert restored["path"].startswith(f"{job.folder}/savepoints/")
    assert job.table(wide=True)["RESTORED-FROM"] == restored["path"]
    assert {c["image"] for p in job.pods("worker") for c in p["spec"]["containers"]} == {images.BETTER}

    began = time.time()
    job.patch_job(args=job.args("--revision", "two"))
    job.running()
    job.goes_on()
    job.measure("upgrade of the arguments", began, goal=GOAL)
    assert job.status["running"]["argsHash"] != after["running"]["argsHash"]
    snapshots = [s["metadata"]["name"] for s in stack.list("fsnap", "penstock.dev/job=upgraded")]
    assert len(snapshots) == 2, snapshots


@pytest.mark.long
def test_pods_that_stand_by_take_over_within_seconds(stack: Stack, deploy: Callable[..., Job]) -> None:
    job = deploy("warm", spec={"upgrade": {"warmStart": True}}).running()
    job.goes_on()
    take_over(stack, job, "image", image=images.BETTER)
    take_over(stack, job, "arguments", job={"args": job.args("--revision", "b")})


def take_over(stack: Stack, job: Job, what: str, /, **change: object) -> None:
    """Upgrade it, and see that the pods that stood by are those that run."""
    before, old = job.status, job.pod_names("master") | job.pod_names("worker")
    began = time.time()
    job.patch(**change)
    job.running()
    job.goes_on()
    job.measure(f"upgrade of the {what} with pods that stand by", began, goal=10)
    after = job.status
    assert after["running"].get("warm"), job.told("it did not take over")
    assert after["jobId"] != before["jobId"]
    assert after["running"]["restoredFrom"]["kind"] == "Savepoint"
    new = (job.pod_names("master") | job.pod_names("worker")) - old
    assert len(new) == 3, new
    wait_until(
        lambda: job.pod_names("master") | job.pod_names("worker") == new,
        lambda: job.told("the old pods' end"),
        seconds=60,
    )
    for deployment in stack.list("deployments", f"penstock.dev/job={job.name}"):
        assert deployment["spec"]["strategy"] == {"type": "Recreate"}
        assert "minReadySeconds" not in deployment["spec"]


@pytest.mark.long
def test_edit_that_is_taken_back_while_pods_come_up_never_touches_the_job(deploy: Callable[..., Job]) -> None:
    job = deploy("warm", spec={"upgrade": {"warmStart": True}}).running()
    before, pods = job.status, job.pod_names("master") | job.pod_names("worker")
    image = before["running"]["image"]
    job.patch(image=images.GOOD if image == images.BETTER else images.BETTER)
    wait_until(lambda: len(job.pod_names("master")) == 2, lambda: job.told("pods that stand by"), seconds=90)
    job.patch(image=image)
    job.running()
    wait_until(lambda: len(job.pod_names("master")) == 1, lambda: job.told("nothing stands by"), seconds=60)
    job.goes_on()
    assert job.status["jobId"] == before["jobId"]
    assert job.pod_names("master") | job.pod_names("worker") == pods


@pytest.mark.long
def test_pods_that_find_no_room_beside_those_that_run_are_removed_and_not_waited_for(
    deploy: Callable[..., Job],
) -> None:
    """One worker a node, and one node: the new one fits only when the old one has gone."""
    alone = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"penstock.dev/job": "alone", "penstock.dev/role": "worker"}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    }
    worker = {"podTemplate": {"spec": {"affinity": alone}}}
    job = deploy("alone", parallelism=1, spec={"upgrade": {"warmStart": True}, "worker": worker}).running()
    job.goes_on()
    before = job.status
    job.patch(image=images.BETTER)
    job.running()
    job.goes_on()
    assert any(event.startswith("StandbyGivenUp: ") for event in job.events()), job.events()
    after = job.status
    assert after["jobId"] != before["jobId"]
    assert not after["running"].get("warm")
    assert after["running"]["image"] == images.BETTER
    assert after["running"]["restoredFrom"]["kind"] == "Savepoint"


def test_revision_that_cannot_be_imported_never_touches_the_job(stack: Stack, job: Job) -> None:
    before, pods = job.status, job.pod_names("master") | job.pod_names("worker")
    job.patch_job(entry="forgetful.py")
    message = job.stalled("CheckFailed")
    assert "a_package_that_was_forgotten" in message
    assert job.condition("Running")["status"] == "True"
    job.goes_on()
    assert job.status["jobId"] == before["jobId"]
    assert job.pod_names("master") | job.pod_names("worker") == pods
    job.patch_job(entry="job.py")
    job.running()
    assert job.status["jobId"] == before["jobId"], "what runs is what is asked for again: nothing is to be done"


def test_image_that_does_not_exist_never_touches_the_job(job: Job) -> None:
    before = job.status
    job.patch(image=images.MISSING)
    message = job.stalled("ImagePullFailed")
    assert images.MISSING in message
    assert "spec.image" in message
    assert job.condition("Running")["status"] == "True"
    job.patch(image=before["running"]["image"])
    job.running()
    job.goes_on()
    assert job.status["jobId"] == before["jobId"]


@pytest.mark.long
def test_revision_that_never_becomes_stable_is_taken_back(job: Job) -> None:
    before = job.status
    job.patch(job={"args": job.args("--refuse")}, rollback={"after": "60s"})
    message = job.stalled("NotStable", seconds=480)
    assert "goes on running" in message
    wait_until(lambda: job.condition("Running")["status"] == "True", lambda: job.told("it runs again"), seconds=240)
    job.goes_on()
    after = job.status
    assert after["running"]["revision"] == before["running"]["revision"]
    assert after["rejected"]["reason"] == "NotStable"
    assert [h["kind"] for h in after["history"][:2]] == ["Rollback", "Upgrade"]
    job.patch(job={"args": job.args("--revision", "three")}, rollback={"after": "4m"})
    job.running()
    job.goes_on()
    assert "rejected" not in job.status


@pytest.mark.long
def test_leaders_are_killed_in_the_middle_and_standbys_go_on(stack: Stack, job: Job) -> None:
    """Two replicas, of which only the one with the Lease acts. Once while the engine makes the savepoint, once while pods
    come and go."""
    stack.install("--set", "replicas=2")
    try:
        # Two replicas are spread, which one is not: all pods are new.
        wait_until(
            lambda: len(stack.operators()) == 2 and stack.leader() in stack.operators(),
            lambda: job.told("one of the two leads"),
            seconds=90,
        )
        leaders = [stack.leader()]
        before, savepoints, told = job.status, upgrade_savepoints(job), event_ids(job)
        job.patch_job(restartNonce=1)
        for steps in (("Stop", "Seal"), ("Teardown", "Start", "Watch")):
            wait_until(
                lambda steps=steps: (job.status.get("operation") or {}).get("step") in steps,
                lambda steps=steps: job.told(f"step {steps}"),
                seconds=180,
            )
            assert set(tellers(job, told)) <= set(leaders)
            stack.kill_operator(leaders[-1])
            took = wait_until(
                lambda: stack.leader() not in ("", *leaders), lambda: job.told("another leader"), seconds=90
            )
            stack.report.append(f"from a leader's death to the next one's Lease: {took:.0f} s")
            leaders.append(stack.leader())
        job.running()
        job.goes_on()
        assert set(tellers(job, told)) <= set(leaders)
        assert tellers(job, told)[-1] == leaders[-1]
    finally:
        stack.install()
    after = job.status
    assert after["jobId"] != before["jobId"]
    assert (after["history"][0]["kind"], after["history"][0]["outcome"]) == ("Upgrade", "Succeeded")
    assert after["history"][1:2] == before["history"][:1], "one operation, begun by one and ended by another"
    wait_until(
        lambda: len(upgrade_savepoints(job)) > len(savepoints), lambda: job.told("its FlinkSnapshot"), seconds=60
    )
    assert len(upgrade_savepoints(job)) == len(savepoints) + 1


def test_last_state_mode_goes_on_from_a_checkpoint(job: Job) -> None:
    before = job.status
    job.patch_job(upgradeMode="last-state", restartNonce=2)
    job.running()
    job.goes_on()
    restored = job.status["running"]["restoredFrom"]
    assert restored["kind"] == "Checkpoint", restored
    assert before["jobId"] in restored["path"]
    job.patch_job(upgradeMode="savepoint")


def upgrade_savepoints(job: Job) -> list[str]:
    found = job.stack.list("fsnap", f"penstock.dev/job={job.name},penstock.dev/trigger=upgrade")
    return [s["metadata"]["name"] for s in found]


def event_ids(job: Job) -> set[str]:
    return {e["metadata"]["uid"] for e in job.event_objects()}


def tellers(job: Job, before: set[str]) -> list[str]:
    """Which replica told each of the job's later events."""
    return [e["reportingInstance"] for e in job.event_objects() if e["metadata"]["uid"] not in before]
