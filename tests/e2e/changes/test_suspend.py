"""Suspend, resume, restore, delete and start again: from another job's savepoint, or empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.stack import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.flinkjob import Job
    from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(900, func_only=True)]


@pytest.fixture
def job(deploy: Callable[..., Job]) -> Job:
    """Start the job, and wait for output."""
    job = deploy("suspended", spec={"deletion": {"savepoint": True, "timeout": "2m"}}).wait_until_running()
    job.wait_for_output()
    return job


def test_a_suspended_job_resumes_with_another_parallelism(job: Job) -> None:
    job.patch_job(state="suspended")
    job.wait_for(phase="Suspended")
    wait_until(
        lambda: not job.pods("master") and not job.pods("worker"), lambda: job.describe_missing("no pods"), seconds=60
    )
    assert job.table()["STATE"] == "Suspended"
    path = job.status["nextRestore"]["path"]
    assert path.startswith(f"{job.folder}/savepoints/")
    assert path in job.condition("Ready")["message"]
    job.output.verify()
    written = job.output.count
    job.patch_job(state="running", parallelism=1)
    job.wait_until_running()
    job.wait_for_output()
    assert job.status["running"]["restoredFrom"]["path"] == path
    assert job.status["parallelism"] == 1
    assert job.output.count > written
    job.patch_job(parallelism=2)
    job.wait_for(phase="Running", parallelism=2, workers=2)


def test_deletion_leaves_only_a_savepoint_from_which_another_job_continues(
    stack: Stack, job: Job, deploy: Callable[..., Job]
) -> None:
    job.delete(wait=180)
    leaves_nothing(stack, job)
    path = savepoint_of_its_end(job)
    successor = deploy("successor", parallelism=1, spec={"job": {"initialSavepointPath": path, "args": job.args()}})
    successor.output = job.output
    check_that_the_successor_continues(successor, path)


@pytest.mark.long
def test_a_job_that_is_deleted_and_applied_again_continues_from_the_latest_state_of_its_name(
    deploy: Callable[..., Job],
) -> None:
    """The output is exactly once: the new job neither repeats nor loses output of the first."""
    job = deploy("again", parallelism=1).wait_until_running()
    job.wait_for_output()
    former = job.status["jobId"]
    job.delete(wait=180)
    job.manifest["spec"]["job"]["startFrom"] = "latest-of-name"
    job.apply().wait_until_running()
    restored = job.status["running"]["restoredFrom"]
    assert restored["path"].startswith(f"{job.folder}/checkpoints/{former}/chk-"), restored
    job.wait_for_output()
    assert any(e.startswith("StateTakenOver: ") and restored["path"] in e for e in job.events())


def test_a_job_that_is_applied_again_without_a_request_starts_empty_and_names_the_old_state(
    deploy: Callable[..., Job],
) -> None:
    job = deploy("again", parallelism=1).wait_until_running()
    former = job.status["jobId"]
    job.delete(wait=180)
    job.write_to("anew")
    job.manifest["spec"]["job"].pop("startFrom", None)
    job.manifest["spec"]["job"]["args"] = job.args()
    job.apply().wait_until_running()
    restored = job.status["running"]["restoredFrom"]
    left = restored["passedOver"]["path"]
    assert (restored["kind"], left.startswith(f"{job.folder}/checkpoints/{former}/chk-")) == ("Fresh", True), restored
    assert left in job.condition("Ready")["message"]
    assert any(e.startswith("StateLeft: ") and left in e for e in job.events())
    wait_until(lambda: job.output.count, lambda: job.describe_missing("output"), seconds=120)
    job.output.verify()


def leaves_nothing(stack: Stack, job: Job) -> None:
    mine = f"penstock.dev/job={job.name}"
    kinds = ("deployments", "services", "configmaps", "secrets", "serviceaccounts", "roles", "pdb", "networkpolicies")
    for kind in (*kinds, "controllerrevisions"):
        wait_until(lambda kind=kind: not stack.list(kind, mine), f"{kind} are left", seconds=60)
    wait_until(lambda: not stack.list("pods", mine), "some pods remain", seconds=90)


def savepoint_of_its_end(job: Job) -> str:
    events = [event for event in job.events() if event.startswith("SavepointCompleted: ")]
    path = events[-1].removeprefix("SavepointCompleted: ").partition(";")[0]
    assert path.startswith(f"{job.folder}/savepoints/")
    return path


@pytest.mark.long
def test_foreground_deletion_waits_for_the_savepoint_also_while_the_operator_is_down(
    stack: Stack, deploy: Callable[..., Job]
) -> None:
    """Kubernetes' garbage collector must keep the pods and their dependencies until the savepoint is complete."""
    job = deploy(
        "foreground", parallelism=1, spec={"deletion": {"savepoint": True, "timeout": "2m"}}
    ).wait_until_running()
    job.wait_for_output()
    pods = job.pod_names("master") | job.pod_names("worker")
    stack.scale_operator(0)
    try:
        job.stack.cluster.kubectl("delete", "fj", job.name, "--cascade=foreground", "--wait=false")
        collected = "foregroundDeletion"
        wait_until(
            lambda: collected not in job.object["metadata"]["finalizers"],
            lambda: job.describe_missing("the collector"),
            seconds=60,
        )
        job.wait_for_output()
        assert job.pod_names("master") | job.pod_names("worker") == pods
    finally:
        stack.scale_operator(1)
    wait_until(lambda: stack.get("fj", job.name) is None, lambda: job.describe_missing("its deletion"), seconds=180)
    leaves_nothing(stack, job)
    successor = deploy(
        "foreground-successor",
        parallelism=1,
        spec={"job": {"initialSavepointPath": savepoint_of_its_end(job), "args": job.args()}},
    ).wait_until_running()
    successor.output = job.output
    successor.wait_for_output()


def check_that_the_successor_continues(successor: Job, path: str) -> None:
    """Check a restarted master, which still has the savepoint in its arguments. Starting from it would repeat all output."""
    successor.wait_until_running()
    successor.wait_for_output()
    before = successor.status
    assert before["running"]["restoredFrom"]["path"] == path
    killed = successor.kill_pod("master")
    wait_until(
        lambda: successor.pod_names("master") - {killed},
        lambda: successor.describe_missing("another master"),
        seconds=120,
    )
    successor.wait_for_output()
    successor.wait_until_running()
    assert successor.status["jobId"] == before["jobId"]


@pytest.mark.long
def test_a_stateless_job_starts_empty_and_reports_it(deploy: Callable[..., Job]) -> None:
    """The graph cannot read the old state, and the spec still names another savepoint. Both have no effect."""
    job = deploy("successor", parallelism=1).wait_until_running()
    job.write_to("anew")
    job.patch_job(upgradeMode="stateless", args=job.args("--without-windows"))
    job.wait_until_running()
    wait_until(lambda: job.output.count, lambda: job.describe_missing("output"), seconds=120)
    job.output.verify()
    restored = job.status["running"]["restoredFrom"]
    assert (restored["kind"], restored["reason"]) == ("Fresh", "upgradeMode is stateless")
    assert "path" not in restored
    started = [event for event in job.events() if event.startswith("Started: ")]
    assert started[-1].endswith("from empty"), started


@pytest.mark.long
def test_a_redeploy_returns_to_a_savepoint(deploy: Callable[..., Job]) -> None:
    """The job repeats the output since then. A separate folder allows the test to verify both outputs."""
    job = deploy("redeployed", parallelism=1).wait_until_running()
    job.wait_for_output()
    path = job.savepoint(1)
    job.wait_for_output()
    before = job.status
    job.write_to("again")
    job.patch_job(initialSavepointPath=path, savepointRedeployNonce=2, args=job.args())
    job.wait_until_running()
    after = job.status
    assert after["jobId"] != before["jobId"]
    assert after["running"]["restoredFrom"]["path"] == path
    wait_until(lambda: job.output.count, lambda: job.describe_missing("output of the redeployed job"), seconds=120)
