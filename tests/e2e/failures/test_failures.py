"""Pods die, Deployments are deleted, or the operator is down: the job recovers from the right checkpoint."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import signal
from typing import TYPE_CHECKING

import pytest

from penstock_operator.api.flinkjob import FlinkJobSpec
from penstock_operator.reconcile.observe.terminations import EXIT_FENCED
from penstock_operator.storage.penstock import PenstockStorages
from tests.e2e.stack import SECRET, wait_until
from tools.devcluster.cluster import KubectlFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.flinkjob import Job
    from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(900, func_only=True)]

KILL_JVM = """
import os
from pathlib import Path
for folder in Path("/proc").iterdir():
    if folder.name.isdigit() and b"SparkSubmit" in (folder / "cmdline").read_bytes():
        os.kill(int(folder.name), 9)
"""


@pytest.fixture
def job(deploy: Callable[..., Job]) -> Job:
    """Start the job, and wait for output."""
    job = deploy("failures").wait_until_running()
    job.wait_for_output()
    return job


def test_a_job_survives_a_killed_worker_pod(job: Job) -> None:
    running = job.status["jobId"]
    killed = job.kill_pod("worker")
    wait_until(
        lambda: len(job.pod_names("worker") - {killed}) == 2,
        lambda: job.describe_missing("another worker"),
        seconds=120,
    )
    job.wait_for_output()
    job.wait_until_running()
    assert job.status["jobId"] == running, "the engine handles a lost worker without a new incarnation"


@pytest.mark.long
def test_a_fenced_master_ends_and_the_job_continues(stack: Stack, job: Job) -> None:
    """Take the next number in the master's folder, like a second master after a network partition."""
    before = job.status
    spec = FlinkJobSpec.model_validate(job.object["spec"])
    secret = stack.get("secret", SECRET) or {}
    keys = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
    asyncio.run(PenstockStorages()(spec, keys).fence(spec.storage.checkpoints, before["jobId"]))
    wait_until(
        lambda: any(e.startswith("Fenced: ") for e in job.events()), lambda: job.describe_missing("Fenced"), seconds=90
    )
    job.wait_until_running()
    job.wait_for_output()
    assert job.status["jobId"] == before["jobId"]
    (master,) = job.pods("master")
    (container,) = master["status"]["containerStatuses"]
    assert container["restartCount"] == 1
    assert container["lastState"]["terminated"]["exitCode"] == EXIT_FENCED


def test_a_job_recovers_from_a_killed_master_pod(job: Job) -> None:
    before = job.status
    killed = job.kill_pod("master")
    wait_until(lambda: job.pod_names("master") - {killed}, lambda: job.describe_missing("another master"), seconds=120)
    job.wait_for_output()
    job.wait_until_running()
    assert job.status["jobId"] == before["jobId"]
    # The operator writes a status with only a new checkpoint at most once a minute.
    wait_until(
        lambda: job.status["lastCheckpoint"]["id"] > before["lastCheckpoint"]["id"],
        lambda: job.describe_missing("a newer checkpoint in the status"),
        seconds=90,
    )


def test_a_job_recovers_if_the_jvm_of_its_master_is_killed(stack: Stack, job: Job) -> None:
    """The container ends, and starts in the same pod with the arguments of the job's *first* start."""
    pod = next(iter(job.pod_names("master")))
    with contextlib.suppress(KubectlFailed):  # the container can end before the response arrives
        stack.cluster.kubectl("exec", pod, "--", "python", "-c", KILL_JVM)
    wait_until(
        lambda: any(c["restartCount"] for p in job.pods("master") for c in p["status"].get("containerStatuses", ())),
        lambda: job.describe_missing("a restarted container"),
        seconds=120,
    )
    job.wait_for_output()
    job.wait_until_running()
    # The operator writes a status with only a new restart count at most once a minute.
    wait_until(
        lambda: int(job.table()["RESTARTS"]) >= 1, lambda: job.describe_missing("a restart in the table"), seconds=90
    )


def test_a_job_recovers_if_its_deployments_are_deleted(stack: Stack, job: Job) -> None:
    stack.cluster.kubectl("delete", "deployment", f"{job.name}-master", f"{job.name}-worker", "--wait=false")
    wait_until(
        lambda: any(e.startswith(("RecoverStarted", "Repaired")) for e in job.events()),
        lambda: job.describe_missing("the operator's reaction"),
        seconds=120,
    )
    job.wait_for_output()
    job.wait_until_running()


def test_jobs_continue_while_the_operator_is_down(stack: Stack, job: Job) -> None:
    stack.cluster.kubectl("scale", "deployment", "-n", "penstock-system", "--all", "--replicas=0")
    try:
        job.wait_for_output()
        job.scale(3)
    finally:
        stack.cluster.kubectl("scale", "deployment", "-n", "penstock-system", "--all", "--replicas=1")
    job.wait_for(phase="Running", parallelism=3)
    job.wait_for_output()
    job.scale(2)
    job.wait_for(phase="Running", parallelism=2, workers=2)


@pytest.mark.long
def test_a_quota_without_space_for_a_worker_is_reported_and_raising_it_is_enough(stack: Stack, job: Job) -> None:
    incarnation = job.status["jobId"]
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "1"}},
    }
    stack.cluster.apply(json.dumps(quota))
    try:
        wait_until(
            lambda: ((stack.get("quota", "small") or {}).get("status") or {}).get("used"),
            "no quota is counted",
            seconds=60,
        )
        job.kill_pod("worker")
        message = job.wait_until_stalled("QuotaExceeded")
        assert "exceeded quota: small" in message
        assert "Raise the quota of the namespace" in message
        wait_until(
            lambda: any(event.startswith("QuotaExceeded: ") for event in job.events()),
            lambda: job.describe_missing("an event about it, at the latest after the next reconciliation"),
            seconds=60,
        )
    finally:
        stack.cluster.kubectl("delete", "quota", "small")
    job.wait_until_running()
    job.wait_for_output()
    assert job.status["jobId"] == incarnation
    assert len(job.pods("worker")) == 2


@pytest.mark.long
def test_an_unresponsive_node_is_reported_and_the_job_survives_it(stack: Stack, job: Job) -> None:
    """The node's containers keep running and writing. Output that was not committed before their replacement must not appear."""
    incarnation = job.status["jobId"]
    before = job.pod_names("master") | job.pod_names("worker")
    stack.cluster.signal("kubelet", signal.SIGSTOP)
    try:
        message = job.wait_until_stalled("NodeLost")
        assert "does not respond" in message
        assert job.condition("Ready")["status"] == "False"
        wait_until(
            lambda: not before & (job.pod_names("master") | job.pod_names("worker")),
            lambda: job.describe_missing("other pods"),
            seconds=120,
        )
    finally:
        stack.cluster.signal("kubelet", signal.SIGCONT)
    job.wait_until_running()
    job.wait_for_output()
    assert job.status["jobId"] == incarnation
