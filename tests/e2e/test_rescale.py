"""`kubectl scale`: up and down, live; a second thought in the middle; an operator that dies in the middle."""

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
    """Running with parallelism 2 and two workers."""
    job = deploy("rescaled")
    job.wait_for(phase="Running", parallelism=2, workers=2)
    job.goes_on()
    return job


def rescaled(job: Job, parallelism: int, *, incarnation: str) -> None:
    job.wait_for(phase="Running", parallelism=parallelism, workers=parallelism)
    job.goes_on()
    status = job.status
    assert status["jobId"] == incarnation, "a rescale is live: no new incarnation"
    assert status["history"][0]["kind"] == "Rescale"
    assert status["history"][0]["outcome"] == "Succeeded"


def test_up_and_down_again(job: Job) -> None:
    before = job.status
    masters, workers = job.pod_names("master"), job.pod_names("worker")
    began = time.time()
    job.scale(4)
    rescaled(job, 4, incarnation=before["jobId"])
    job.measure("rescale 2 -> 4", began, goal=GOAL)
    assert job.pod_names("master") == masters
    assert workers < job.pod_names("worker"), "no pod that stays is restarted"
    grown = job.pod_names("worker")
    began = time.time()
    job.scale(2)
    rescaled(job, 2, incarnation=before["jobId"])
    job.measure("rescale 4 -> 2", began, goal=GOAL)
    assert job.pod_names("master") == masters
    assert job.pod_names("worker") < grown
    assert int(job.table()["RESTARTS"]) == int(before["restarts"]), "a rescale is no restart"


@pytest.mark.long
def test_second_edit_and_revert_in_the_middle(job: Job) -> None:
    incarnation = job.status["jobId"]
    job.scale(4)
    wait_until(lambda: job.status.get("operation"), lambda: job.told("the rescale"), seconds=60)
    job.scale(3)
    rescaled(job, 3, incarnation=incarnation)
    job.scale(4)
    wait_until(lambda: job.status.get("operation"), lambda: job.told("the rescale"), seconds=60)
    job.scale(2)
    rescaled(job, 2, incarnation=incarnation)


@pytest.mark.long
def test_operator_is_killed_in_the_middle(stack: Stack, job: Job) -> None:
    incarnation = job.status["jobId"]
    job.scale(3)
    wait_until(
        lambda: (job.status.get("operation") or {}).get("kind") == "Rescale", lambda: job.told("Rescale"), seconds=60
    )
    stack.kill_operator()
    rescaled(job, 3, incarnation=incarnation)
    job.scale(2)
    wait_until(
        lambda: (job.status.get("operation") or {}).get("step") in ("Rescale", "RemoveWorkers"),
        lambda: job.told("the engine to be asked"),
        seconds=60,
    )
    stack.kill_operator()
    rescaled(job, 2, incarnation=incarnation)


@pytest.mark.long
def test_a_master_that_starts_again_finds_the_parallelism_and_its_own_configuration(stack: Stack, job: Job) -> None:
    """The one is read anew from where a live rescale wrote it; the other cannot be changed by anybody."""
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
    wait_until(lambda: job.pod_names("master") - {killed}, lambda: job.told("another master"), seconds=120)
    wait_until(lambda: job.condition("Running")["status"] == "True", lambda: job.told("RUNNING"), seconds=120)
    job.goes_on()
    job.wait_for(phase="Running", parallelism=3, workers=3)
    assert job.status["jobId"] == before["jobId"]
    assert [m for m in configs(stack, job) if m.get("immutable")] == [config]
    job.patch_job(restartNonce=1, parallelism=2)
    job.wait_for(phase="Running", parallelism=2, workers=2)
    job.goes_on()
    (after,) = [m for m in configs(stack, job) if m.get("immutable")]
    assert after["metadata"]["name"] != name


def configs(stack: Stack, job: Job) -> list[dict[str, Any]]:
    return stack.list("configmaps", f"penstock.dev/job={job.name}")


def test_workers_that_no_node_takes_show_and_can_be_taken_back(job: Job) -> None:
    """The pods that are there stay as they are: the template of a running incarnation is not touched."""
    incarnation = job.status["jobId"]
    kubectl = job.stack.cluster.kubectl
    nodes = kubectl("get", "nodes", "-o", "name").split()
    kubectl("cordon", *nodes)
    try:
        job.scale(3)
        message = job.stalled("Unschedulable")
        assert "goes on with parallelism 2" in message
        assert job.condition("Running")["status"] == "True"
        job.goes_on()
        job.scale(2)
        job.wait_for(phase="Running", parallelism=2, workers=2)
    finally:
        kubectl("uncordon", *nodes)
    assert job.status["jobId"] == incarnation
    assert len(job.pods("worker")) == 2
