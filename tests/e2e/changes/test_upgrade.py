"""Upgrades to another revision: checked, started from a savepoint, observed, and refused or rolled back if the revision is bad."""

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
    """Start the job with its first revision."""
    job = deploy("upgraded").wait_until_running()
    job.wait_for_output()
    return job


def test_the_image_and_then_the_arguments_are_upgraded(stack: Stack, job: Job) -> None:
    before = job.status
    began = time.time()
    job.patch(image=images.BETTER)
    job.wait_until_running()
    job.wait_for_output()
    job.record_gap("upgrade of the image", began, goal=GOAL)
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
    job.wait_until_running()
    job.wait_for_output()
    job.record_gap("upgrade of the arguments", began, goal=GOAL)
    assert job.status["running"]["argsHash"] != after["running"]["argsHash"]
    snapshots = [s["metadata"]["name"] for s in stack.list("fsnap", "penstock.dev/job=upgraded")]
    assert len(snapshots) == 2, snapshots


@pytest.mark.long
def test_standby_pods_take_over_within_seconds(stack: Stack, deploy: Callable[..., Job]) -> None:
    job = deploy("warm", spec={"upgrade": {"warmStart": True}}).wait_until_running()
    job.wait_for_output()
    take_over(stack, job, "image", image=images.BETTER)
    take_over(stack, job, "arguments", job={"args": job.args("--revision", "b")})


def take_over(stack: Stack, job: Job, role: str, /, **change: object) -> None:
    """Upgrade the job, and check that the standby pods become the running pods."""
    before, old = job.status, job.pod_names("master") | job.pod_names("worker")
    began = time.time()
    job.patch(**change)
    job.wait_until_running()
    job.wait_for_output()
    job.record_gap(f"upgrade of the {role} with standby pods", began, goal=10)
    after = job.status
    assert after["running"].get("warm"), job.describe_missing("a takeover by the standby pods")
    assert after["jobId"] != before["jobId"]
    assert after["running"]["restoredFrom"]["kind"] == "Savepoint"
    new = (job.pod_names("master") | job.pod_names("worker")) - old
    assert len(new) == 3, new
    wait_until(
        lambda: job.pod_names("master") | job.pod_names("worker") == new,
        lambda: job.describe_missing("the end of the old pods"),
        seconds=60,
    )
    for deployment in stack.list("deployments", f"penstock.dev/job={job.name}"):
        assert deployment["spec"]["strategy"] == {"type": "Recreate"}
        assert "minReadySeconds" not in deployment["spec"]


@pytest.mark.long
def test_an_edit_that_is_reverted_while_pods_start_does_not_change_the_job(deploy: Callable[..., Job]) -> None:
    job = deploy("warm", spec={"upgrade": {"warmStart": True}}).wait_until_running()
    before, pods = job.status, job.pod_names("master") | job.pod_names("worker")
    image = before["running"]["image"]
    job.patch(image=images.GOOD if image == images.BETTER else images.BETTER)
    wait_until(lambda: len(job.pod_names("master")) == 2, lambda: job.describe_missing("standby pods"), seconds=90)
    job.patch(image=image)
    job.wait_until_running()
    wait_until(
        lambda: len(job.pod_names("master")) == 1,
        lambda: job.describe_missing("the end of the standby pods"),
        seconds=60,
    )
    job.wait_for_output()
    assert job.status["jobId"] == before["jobId"]
    assert job.pod_names("master") | job.pod_names("worker") == pods


@pytest.mark.long
def test_standby_pods_that_cannot_be_scheduled_are_removed_without_waiting(
    deploy: Callable[..., Job],
) -> None:
    """The cluster has one node and allows one worker per node. The new worker can therefore start only after the old one is gone."""
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
    job = deploy("alone", parallelism=1, spec={"upgrade": {"warmStart": True}, "worker": worker}).wait_until_running()
    job.wait_for_output()
    before = job.status
    job.patch(image=images.BETTER)
    job.wait_until_running()
    job.wait_for_output()
    assert any(event.startswith("StandbyGivenUp: ") for event in job.events()), job.events()
    after = job.status
    assert after["jobId"] != before["jobId"]
    assert not after["running"].get("warm")
    assert after["running"]["image"] == images.BETTER
    assert after["running"]["restoredFrom"]["kind"] == "Savepoint"


def test_a_revision_that_cannot_be_imported_does_not_change_the_job(stack: Stack, job: Job) -> None:
    before, pods = job.status, job.pod_names("master") | job.pod_names("worker")
    job.patch_job(entry="forgetful.py")
    message = job.wait_until_stalled("CheckFailed")
    assert "a_package_that_was_forgotten" in message
    assert job.condition("Running")["status"] == "True"
    job.wait_for_output()
    assert job.status["jobId"] == before["jobId"]
    assert job.pod_names("master") | job.pod_names("worker") == pods
    job.patch_job(entry="job.py")
    job.wait_until_running()
    assert job.status["jobId"] == before["jobId"], "the spec matches the running job again, so nothing changes"


def test_an_image_that_does_not_exist_does_not_change_the_job(job: Job) -> None:
    before = job.status
    job.patch(image=images.MISSING)
    message = job.wait_until_stalled("ImagePullFailed")
    assert images.MISSING in message
    assert "spec.image" in message
    assert job.condition("Running")["status"] == "True"
    job.patch(image=before["running"]["image"])
    job.wait_until_running()
    job.wait_for_output()
    assert job.status["jobId"] == before["jobId"]


@pytest.mark.long
def test_a_revision_that_never_becomes_stable_is_rolled_back(job: Job) -> None:
    before = job.status
    job.patch(job={"args": job.args("--refuse")}, rollback={"after": "60s"})
    message = job.wait_until_stalled("NotStable", seconds=480)
    assert "keeps running" in message
    wait_until(
        lambda: job.condition("Running")["status"] == "True", lambda: job.describe_missing("a running job"), seconds=240
    )
    job.wait_for_output()
    after = job.status
    assert after["running"]["revision"] == before["running"]["revision"]
    assert after["rejected"]["reason"] == "NotStable"
    assert [h["kind"] for h in after["history"][:2]] == ["Rollback", "Upgrade"]
    job.patch(job={"args": job.args("--revision", "three")}, rollback={"after": "4m"})
    job.wait_until_running()
    job.wait_for_output()
    assert "rejected" not in job.status


@pytest.mark.long
def test_standby_operators_continue_if_leaders_are_killed_during_an_upgrade(stack: Stack, job: Job) -> None:
    """Run two replicas, of which only the holder of the Lease acts. Kill the leader once during the savepoint, and once while pods
    are replaced.
    """
    stack.install("--set", "replicas=2")
    try:
        # Two replicas are spread over nodes, and one is not, so all pods are new.
        wait_until(
            lambda: len(stack.operators()) == 2 and stack.leader() in stack.operators(),
            lambda: job.describe_missing("a leader among the two"),
            seconds=90,
        )
        leaders = [stack.leader()]
        before, savepoints, former_events = job.status, upgrade_savepoints(job), event_ids(job)
        job.patch_job(restartNonce=1)
        for steps in (("Stop", "Seal"), ("Teardown", "Start", "Watch")):
            wait_until(
                lambda steps=steps: (job.status.get("operation") or {}).get("step") in steps,
                lambda steps=steps: job.describe_missing(f"step {steps}"),
                seconds=180,
            )
            assert set(reporters_of_new_events(job, former_events)) <= set(leaders)
            stack.kill_operator(leaders[-1])
            took = wait_until(
                lambda: stack.leader() not in ("", *leaders), lambda: job.describe_missing("another leader"), seconds=90
            )
            stack.report.append(f"from the death of a leader to the Lease of the next: {took:.0f} s")
            leaders.append(stack.leader())
        job.wait_until_running()
        job.wait_for_output()
        assert set(reporters_of_new_events(job, former_events)) <= set(leaders)
        assert reporters_of_new_events(job, former_events)[-1] == leaders[-1]
    finally:
        stack.install()
    after = job.status
    assert after["jobId"] != before["jobId"]
    assert (after["history"][0]["kind"], after["history"][0]["outcome"]) == ("Upgrade", "Succeeded")
    assert after["history"][1:2] == before["history"][:1], (
        "one operation, started by one replica and completed by another"
    )
    wait_until(
        lambda: len(upgrade_savepoints(job)) > len(savepoints),
        lambda: job.describe_missing("its FlinkSnapshot"),
        seconds=60,
    )
    assert len(upgrade_savepoints(job)) == len(savepoints) + 1


def test_last_state_mode_continues_from_a_checkpoint(job: Job) -> None:
    before = job.status
    job.patch_job(upgradeMode="last-state", restartNonce=2)
    job.wait_until_running()
    job.wait_for_output()
    restored = job.status["running"]["restoredFrom"]
    assert restored["kind"] == "Checkpoint", restored
    assert before["jobId"] in restored["path"]
    job.patch_job(upgradeMode="savepoint")


def upgrade_savepoints(job: Job) -> list[str]:
    found = job.stack.list("fsnap", f"penstock.dev/job={job.name},penstock.dev/trigger=upgrade")
    return [s["metadata"]["name"] for s in found]


def event_ids(job: Job) -> set[str]:
    return {e["metadata"]["uid"] for e in job.event_objects()}


def reporters_of_new_events(job: Job, before: set[str]) -> list[str]:
    """Return the replica that reported each of the job's later events."""
    return [e["reportingInstance"] for e in job.event_objects() if e["metadata"]["uid"] not in before]
