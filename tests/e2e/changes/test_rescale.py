"""`kubectl scale`, live: up and down, a second edit during a rescale, and an operator that dies during it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.stack import wait_until
from tools.devcluster.cluster import KubectlFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.flinkjob import Job
    from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(900, func_only=True)]

GOAL = 10.0


@pytest.fixture
def job(deploy: Callable[..., Job]) -> Job:
    """Start the job with parallelism 2 and two workers."""
    job = deploy("rescaled")
    job.wait_for(phase="Running", parallelism=2, workers=2)
    job.wait_for_output()
    return job


def rescaled(job: Job, parallelism: int, *, incarnation: str) -> None:
    job.wait_for(phase="Running", parallelism=parallelism, workers=parallelism)
    job.wait_for_output()
    status = job.status
    assert status["jobId"] == incarnation, "a rescale is live: no new incarnation"
    assert status["history"][0]["kind"] == "Rescale"
    assert status["history"][0]["outcome"] == "Succeeded"


def test_the_job_scales_up_and_down(job: Job) -> None:
    before = job.status
    masters, workers = job.pod_names("master"), job.pod_names("worker")
    began = time.time()
    job.scale(4)
    rescaled(job, 4, incarnation=before["jobId"])
    job.record_gap("rescale 2 -> 4", began, goal=GOAL)
    assert job.pod_names("master") == masters
    assert workers < job.pod_names("worker"), "the remaining pods do not restart"
    grown = job.pod_names("worker")
    began = time.time()
    job.scale(2)
    rescaled(job, 2, incarnation=before["jobId"])
    job.record_gap("rescale 4 -> 2", began, goal=GOAL)
    assert job.pod_names("master") == masters
    assert job.pod_names("worker") < grown
    assert int(job.table()["RESTARTS"]) == int(before["restarts"]), "a rescale does not count as a restart"


@pytest.mark.long
def test_a_second_edit_and_a_revert_during_a_rescale_succeed(job: Job) -> None:
    incarnation = job.status["jobId"]
    job.scale(4)
    wait_until(lambda: job.status.get("operation"), lambda: job.describe_missing("the rescale"), seconds=60)
    job.scale(3)
    rescaled(job, 3, incarnation=incarnation)
    job.scale(4)
    wait_until(lambda: job.status.get("operation"), lambda: job.describe_missing("the rescale"), seconds=60)
    job.scale(2)
    rescaled(job, 2, incarnation=incarnation)


@pytest.mark.long
def test_a_rescale_succeeds_if_the_operator_is_killed(stack: Stack, job: Job) -> None:
    incarnation = job.status["jobId"]
    job.scale(3)
    wait_until(
        lambda: (job.status.get("operation") or {}).get("kind") == "Rescale",
        lambda: job.describe_missing("Rescale"),
        seconds=60,
    )
    stack.kill_operator()
    rescaled(job, 3, incarnation=incarnation)
    job.scale(2)
    wait_until(
        lambda: (job.status.get("operation") or {}).get("step") in ("Rescale", "RemoveWorkers"),
        lambda: job.describe_missing("a request to the engine"),
        seconds=60,
    )
    stack.kill_operator()
    rescaled(job, 2, incarnation=incarnation)


@pytest.mark.long
def test_a_restarted_master_finds_the_parallelism_and_its_configuration(stack: Stack, job: Job) -> None:
    """The master reads the parallelism that a live rescale wrote. The configuration is immutable."""
    before = job.status
    (config,) = [m for m in configs(stack, job) if m.get("immutable")]
    name = config["metadata"]["name"]
    with pytest.raises(KubectlFailed, match="immutable"):
        stack.cluster.kubectl(
            "patch", "cm", name, "--type=merge", "-p", json.dumps({"data": {"penstock.yaml": "a: 1"}})
        )
    job.scale(3)
    rescaled(job, 3, incarnation=before["jobId"])
    killed = job.kill_pod("master")
    wait_until(lambda: job.pod_names("master") - {killed}, lambda: job.describe_missing("another master"), seconds=120)
    wait_until(
        lambda: job.condition("Running")["status"] == "True", lambda: job.describe_missing("RUNNING"), seconds=120
    )
    job.wait_for_output()
    job.wait_for(phase="Running", parallelism=3, workers=3)
    assert job.status["jobId"] == before["jobId"]
    assert [m for m in configs(stack, job) if m.get("immutable")] == [config]
    job.patch_job(restartNonce=1, parallelism=2)
    job.wait_for(phase="Running", parallelism=2, workers=2)
    job.wait_for_output()
    (after,) = [m for m in configs(stack, job) if m.get("immutable")]
    assert after["metadata"]["name"] != name


def configs(stack: Stack, job: Job) -> list[dict[str, Any]]:
    return stack.list("configmaps", f"penstock.dev/job={job.name}")


def test_unschedulable_workers_are_reported_and_the_edit_can_be_reverted(job: Job) -> None:
    """Existing pods do not change, because the template of a running incarnation stays the same."""
    incarnation = job.status["jobId"]
    kubectl = job.stack.cluster.kubectl
    nodes = kubectl("get", "nodes", "-o", "name").split()
    kubectl("cordon", *nodes)
    try:
        job.scale(3)
        message = job.wait_until_stalled("Unschedulable")
        assert "keeps parallelism 2" in message
        assert job.condition("Running")["status"] == "True"
        job.wait_for_output()
        job.scale(2)
        job.wait_for(phase="Running", parallelism=2, workers=2)
    finally:
        kubectl("uncordon", *nodes)
    assert job.status["jobId"] == incarnation
    assert len(job.pods("worker")) == 2
