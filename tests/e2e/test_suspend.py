"""Stop, go on, go back, delete, begin anew: from another job's savepoint, or from nothing."""

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
    """Running."""
    job = deploy("suspended", spec={"deletion": {"savepoint": True, "timeout": "2m"}}).running()
    job.goes_on()
    return job


def test_suspend_and_resume_with_another_parallelism(job: Job) -> None:
    job.patch_job(state="suspended")
    job.wait_for(phase="Suspended")
    wait_until(lambda: not job.pods("master") and not job.pods("worker"), lambda: job.told("no pods"), seconds=60)
    assert job.table()["STATE"] == "Suspended"
    path = job.status["nextRestore"]["path"]
    assert path.startswith(f"{job.folder}/savepoints/")
    assert path in job.condition("Ready")["message"]
    job.output.verify()
    written = job.output.count
    job.patch_job(state="running", parallelism=1)
    job.running()
    job.goes_on()
    assert job.status["running"]["restoredFrom"]["path"] == path
    assert job.status["parallelism"] == 1
    assert job.output.count > written
    job.patch_job(parallelism=2)
    job.wait_for(phase="Running", parallelism=2, workers=2)


def test_delete_leaves_a_savepoint_that_another_job_goes_on_from_and_nothing_else(
    stack: Stack, job: Job, deploy: Callable[..., Job]
) -> None:
    job.delete(wait=180)
    leaves_nothing(stack, job)
    path = savepoint_of_its_end(job)
    heir = deploy("heir", parallelism=1, spec={"job": {"initialSavepointPath": path, "args": job.args()}})
    heir.output = job.output
    goes_on_elsewhere_once(heir, path)


@pytest.mark.long
def test_delete_and_apply_again_goes_on_from_the_latest_of_the_name(deploy: Callable[..., Job]) -> None:
    """Exactly once: what the first one has committed does not come again, and nothing after it is missing."""
    job = deploy("again", parallelism=1).running()
    job.goes_on()
    former = job.status["jobId"]
    job.delete(wait=180)
    job.manifest["spec"]["job"]["startFrom"] = "latest-of-name"
    job.apply().running()
    restored = job.status["running"]["restoredFrom"]
    assert restored["path"].startswith(f"{job.folder}/checkpoints/{former}/chk-"), restored
    job.goes_on()
    assert any(e.startswith("StateTakenOver: ") and restored["path"] in e for e in job.events())


def test_delete_and_apply_again_without_a_word_starts_empty_and_names_what_was_left(deploy: Callable[..., Job]) -> None:
    job = deploy("again", parallelism=1).running()
    former = job.status["jobId"]
    job.delete(wait=180)
    job.write_to("anew")
    job.manifest["spec"]["job"].pop("startFrom", None)
    job.manifest["spec"]["job"]["args"] = job.args()
    job.apply().running()
    restored = job.status["running"]["restoredFrom"]
    left = restored["passedOver"]["path"]
    assert (restored["kind"], left.startswith(f"{job.folder}/checkpoints/{former}/chk-")) == ("Fresh", True), restored
    assert left in job.condition("Ready")["message"]
    assert any(e.startswith("StateLeft: ") and left in e for e in job.events())
    wait_until(lambda: job.output.count, lambda: job.told("output"), seconds=120)
    job.output.verify()


def leaves_nothing(stack: Stack, job: Job) -> None:
    mine = f"penstock.dev/job={job.name}"
    kinds = ("deployments", "services", "configmaps", "secrets", "serviceaccounts", "roles", "pdb", "networkpolicies")
    for kind in (*kinds, "controllerrevisions"):
        wait_until(lambda kind=kind: not stack.list(kind, mine), f"{kind} are left", seconds=60)
    wait_until(lambda: not stack.list("pods", mine), "pods are left", seconds=90)


def savepoint_of_its_end(job: Job) -> str:
    told = [event for event in job.events() if event.startswith("SavepointCompleted: ")]
    path = told[-1].removeprefix("SavepointCompleted: ").partition(";")[0]
    assert path.startswith(f"{job.folder}/savepoints/")
    return path


@pytest.mark.long
def test_foreground_deletion_waits_for_the_savepoint_also_while_the_operator_is_away(
    stack: Stack, deploy: Callable[..., Job]
) -> None:
    """Kubernetes' own garbage collector must leave the pods, and what they need, until the savepoint is taken."""
    job = deploy("foreground", parallelism=1, spec={"deletion": {"savepoint": True, "timeout": "2m"}}).running()
    job.goes_on()
    pods = job.pod_names("master") | job.pod_names("worker")
    stack.scale_operator(0)
    try:
        job.stack.cluster.kubectl("delete", "fj", job.name, "--cascade=foreground", "--wait=false")
        collected = "foregroundDeletion"
        wait_until(
            lambda: collected not in job.object["metadata"]["finalizers"], lambda: job.told("the collector"), seconds=60
        )
        job.goes_on()
        assert job.pod_names("master") | job.pod_names("worker") == pods
    finally:
        stack.scale_operator(1)
    wait_until(lambda: stack.get("fj", job.name) is None, lambda: job.told("its deletion"), seconds=180)
    leaves_nothing(stack, job)
    heir = deploy(
        "foreground-heir",
        parallelism=1,
        spec={"job": {"initialSavepointPath": savepoint_of_its_end(job), "args": job.args()}},
    ).running()
    heir.output = job.output
    heir.goes_on()


def goes_on_elsewhere_once(heir: Job, path: str) -> None:
    """A master that starts again has the savepoint in its arguments still; started from it, it would write all anew."""
    heir.running()
    heir.goes_on()
    before = heir.status
    assert before["running"]["restoredFrom"]["path"] == path
    killed = heir.kill_pod("master")
    wait_until(lambda: heir.pod_names("master") - {killed}, lambda: heir.told("another master"), seconds=120)
    heir.goes_on()
    heir.running()
    assert heir.status["jobId"] == before["jobId"]


@pytest.mark.long
def test_stateless_starts_empty_and_says_so(deploy: Callable[..., Job]) -> None:
    """With a graph that does not take the state, too, since that is given up; also if another savepoint is named still."""
    job = deploy("heir", parallelism=1).running()
    job.write_to("anew")
    job.patch_job(upgradeMode="stateless", args=job.args("--without-windows"))
    job.running()
    wait_until(lambda: job.output.count, lambda: job.told("output"), seconds=120)
    job.output.verify()
    restored = job.status["running"]["restoredFrom"]
    assert (restored["kind"], restored["reason"]) == ("Fresh", "upgradeMode is stateless")
    assert "path" not in restored
    started = [event for event in job.events() if event.startswith("Started: ")]
    assert started[-1].endswith("from empty"), started


@pytest.mark.long
def test_redeploy_goes_back_to_a_savepoint(deploy: Callable[..., Job]) -> None:
    """Output since then is written again, to a folder of its own here, so that both can be held against the rule."""
    job = deploy("redeployed", parallelism=1).running()
    job.goes_on()
    path = job.savepoint(1)
    job.goes_on()
    before = job.status
    job.write_to("again")
    job.patch_job(initialSavepointPath=path, savepointRedeployNonce=2, args=job.args())
    job.running()
    after = job.status
    assert after["jobId"] != before["jobId"]
    assert after["running"]["restoredFrom"]["path"] == path
    wait_until(lambda: job.output.count, lambda: job.told("output of the redeployed job"), seconds=120)
