"""Two masters of a FlinkJob: the standby takes over, and passes the operator's requests on to the leader."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import fsspec
import msgspec
import pytest

from penstock.jobmanager.process.election.claims import Holder
from penstock.jobmanager.process.election.storage_claims import FOLDER
from tests.e2e import images
from tests.e2e.stack import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.flinkjob import Job
    from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(900, func_only=True)]

GOAL = 15.0


def leader_of(job: Job) -> str:
    """Return the pod that leads according to storage, or an empty string."""
    url = f"{job.folder}/checkpoints/{job.status['jobId']}/{FOLDER}"
    files, path = fsspec.core.url_to_fs(url, **job.stack.s3.storage_options())
    files.invalidate_cache()
    names = files.ls(path, detail=False) if files.exists(path) else []
    terms = sorted(int(name) for name in (found.rsplit("/", 1)[-1] for found in names) if name.isdecimal())
    if not terms:
        return ""
    return msgspec.json.decode(files.cat(f"{path}/{terms[-1]}"), type=Holder).id.split("/")[0]


def wait_for_leader(job: Job, other_than: str = "") -> str:
    wait_until(
        lambda: leader_of(job) in job.pod_names("master") - {other_than},
        lambda: job.describe_missing("a leader"),
        seconds=120,
    )
    return leader_of(job)


def wait_for_masters(job: Job) -> None:
    wait_until(
        lambda: len([pod for pod in job.pods("master") if is_ready(pod)]) == 2,
        lambda: job.describe_missing("two masters that are ready"),
        seconds=180,
    )


def is_ready(pod: dict) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))


@pytest.fixture
def job(deploy: Callable[..., Job]) -> Job:
    """Start a job with two masters, and wait for output."""
    job = deploy("standby", parallelism=1, spec={"master": {"replicas": 2}}).wait_until_running()
    wait_for_masters(job)
    job.wait_for_output()
    return job


@pytest.mark.parametrize("how", ["killed", "deleted"])
def test_the_standby_takes_over_from_a_leader_whose_pod_is(stack: Stack, job: Job, how: str) -> None:
    before, leader = job.status, wait_for_leader(job)
    began = time.time()
    options = ("--grace-period=0", "--force") if how == "killed" else ()
    stack.cluster.kubectl("delete", "pod", leader, *options, "--wait=false")
    assert wait_for_leader(job, other_than=leader) != leader
    job.wait_for_output()
    job.record_gap(f"pod of the leader {how}", began, goal=GOAL)
    wait_for_masters(job)
    job.wait_until_running()
    after = job.status
    assert after["jobId"] == before["jobId"], "a takeover needs no new incarnation"
    assert after["running"]["revision"] == before["running"]["revision"]


@pytest.mark.long
def test_the_operator_controls_a_job_through_its_standby(stack: Stack, job: Job) -> None:
    standby = next(iter(job.pod_names("master") - {wait_for_leader(job)}))
    stack.cluster.kubectl("label", "pod", standby, "test=standby", "--overwrite")
    only_standby = {"spec": {"selector": {"test": "standby"}}}
    stack.cluster.kubectl("patch", "svc", f"{job.name}-rest", "--type=merge", "-p", json.dumps(only_standby))
    before = job.status["jobId"]
    savepoint = job.savepoint(1)
    assert savepoint.startswith(f"{job.folder}/savepoints/")
    job.scale(2)
    job.wait_for(phase="Running", parallelism=2, workers=2)
    job.wait_for_output()
    assert job.status["jobId"] == before, "a rescale is live: no new incarnation"
    job.patch(image=images.BETTER)
    wait_until(lambda: job.status["jobId"] != before, lambda: job.describe_missing("the new revision"), seconds=300)
    job.wait_until_running(seconds=300)
    job.wait_for_output()
    assert job.status["running"]["restoredFrom"]["path"].startswith(f"{job.folder}/savepoints/")
    assert job.status["history"][0]["kind"] == "Upgrade"
    wait_for_masters(job)
    job.patch_job(state="suspended")
    job.wait_for(phase="Suspended")
    job.patch_job(state="running")
    job.wait_until_running(seconds=300)
    job.wait_for_output()
