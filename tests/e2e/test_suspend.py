"""Stop, go on, go back, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fsspec
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


def test_redeploy_from_a_savepoint_that_is_missing_stops_nothing(job: Job) -> None:
    before = job.status
    job.patch_job(initialSavepointPath=f"{job.folder}/savepoints/nowhere", savepointRedeployNonce=1)
    message = job.stalled("SavepointInvalid")
    assert "nowhere" in message
    assert job.condition("Running")["status"] == "True"
    job.patch_job(initialSavepointPath=None, savepointRedeployNonce=None)
    job.running()
    job.goes_on()
    assert job.status["jobId"] == before["jobId"]


def test_delete_ends_with_a_savepoint_and_leaves_nothing_behind(stack: Stack, job: Job) -> None:
    job.delete(wait=180)
    mine = f"penstock.dev/job={job.name}"
    for kind in (
        "deployments",
        "services",
        "configmaps",
        "secrets",
        "serviceaccounts",
        "roles",
        "pdb",
        "networkpolicies",
    ):
        wait_until(lambda kind=kind: not stack.list(kind, mine), f"{kind} are left", seconds=60)
    wait_until(lambda: not stack.list("pods", mine), "pods are left", seconds=90)
    events = job.events()
    assert any(e.startswith("SavepointCompleted") for e in events), events


def test_redeploy_goes_back_to_a_savepoint(deploy: Callable[..., Job]) -> None:
    """Output since then is written again, to a folder of its own here, so that both can be held against the rule."""
    job = deploy("redeployed", parallelism=1).running()
    job.goes_on()
    job.patch_job(savepointTriggerNonce=1)
    wait_until(lambda: savepoints(job), lambda: job.told("the savepoint"), seconds=120)
    path = savepoints(job)[0]["status"]["path"]
    job.goes_on()
    before = job.status
    again = f"{job.folder}/again"
    arguments = [again if a == f"{job.folder}/output" else a for a in job.args()]
    job.patch_job(initialSavepointPath=path, savepointRedeployNonce=2, args=arguments)
    job.running()
    after = job.status
    assert after["jobId"] != before["jobId"]
    assert after["running"]["restoredFrom"]["path"] == path
    fs, folder = fsspec.core.url_to_fs(again, **job.stack.s3.storage_options())

    def there() -> bool:
        fs.invalidate_cache()
        return bool(fs.find(f"{folder}/numbers"))

    wait_until(there, lambda: job.told("output of the redeployed job"), seconds=120)


def savepoints(job: Job) -> list[dict[str, dict[str, str]]]:
    """Complete ones that a nonce asked for."""
    found = job.stack.list("fsnap", f"penstock.dev/job={job.name},penstock.dev/trigger=nonce")
    return [s for s in found if s.get("status", {}).get("state") == "Completed"]
