"""Pods that die, Deployments that are deleted, an operator that is not there: the job heals, from the right checkpoint."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import signal
from typing import TYPE_CHECKING

import pytest

from penstock_operator.api.flinkjob import FlinkJobSpec
from penstock_operator.reconcile.observe.troubles import EXIT_FENCED
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
    """Running, with output."""
    job = deploy("failures").running()
    job.goes_on()
    return job


def test_worker_pod_is_killed(job: Job) -> None:
    running = job.status["jobId"]
    killed = job.kill_pod("worker")
    wait_until(lambda: len(job.pod_names("worker") - {killed}) == 2, lambda: job.told("another worker"), seconds=120)
    job.goes_on()
    job.running()
    assert job.status["jobId"] == running, "a lost worker is the engine's business, not a new incarnation"


@pytest.mark.long
def test_a_master_that_is_fenced_off_ends_and_goes_on_by_itself(stack: Stack, job: Job) -> None:
    """As by a master on a node that was cut off and came back for a moment: somebody takes the next number in its folder."""
    before = job.status
    spec = FlinkJobSpec.model_validate(job.object["spec"])
    secret = stack.get("secret", SECRET) or {}
    keys = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
    asyncio.run(PenstockStorages()(spec, keys).fence(spec.storage.checkpoints, before["jobId"]))
    wait_until(lambda: any(e.startswith("Fenced: ") for e in job.events()), lambda: job.told("Fenced"), seconds=90)
    job.running()
    job.goes_on()
    assert job.status["jobId"] == before["jobId"]
    (master,) = job.pods("master")
    (container,) = master["status"]["containerStatuses"]
    assert container["restartCount"] == 1
    assert container["lastState"]["terminated"]["exitCode"] == EXIT_FENCED


def test_master_pod_is_killed(job: Job) -> None:
    before = job.status
    killed = job.kill_pod("master")
    wait_until(lambda: job.pod_names("master") - {killed}, lambda: job.told("another master"), seconds=120)
    job.goes_on()
    job.running()
    assert job.status["jobId"] == before["jobId"]
    # Checkpoints alone are written once a minute at most.
    wait_until(
        lambda: job.status["lastCheckpoint"]["id"] > before["lastCheckpoint"]["id"],
        lambda: job.told("a newer checkpoint in the status"),
        seconds=90,
    )


def test_jvm_of_the_master_is_killed(stack: Stack, job: Job) -> None:
    """Its container ends, and starts in the same pod with the same arguments: how the job was *first* started."""
    pod = next(iter(job.pod_names("master")))
    with contextlib.suppress(KubectlFailed):  # the container may end before the answer comes
        stack.cluster.kubectl("exec", pod, "--", "python", "-c", KILL_JVM)
    wait_until(
        lambda: any(c["restartCount"] for p in job.pods("master") for c in p["status"].get("containerStatuses", ())),
        lambda: job.told("a restarted container"),
        seconds=120,
    )
    job.goes_on()
    job.running()
    # Restarts alone are written once a minute at most.
    wait_until(lambda: int(job.table()["RESTARTS"]) >= 1, lambda: job.told("a restart in the table"), seconds=90)


def test_deployments_are_deleted(stack: Stack, job: Job) -> None:
    stack.cluster.kubectl("delete", "deployment", f"{job.name}-master", f"{job.name}-worker", "--wait=false")
    wait_until(
        lambda: any(e.startswith(("RecoverStarted", "Repaired")) for e in job.events()),
        lambda: job.told("the operator to notice"),
        seconds=120,
    )
    job.goes_on()
    job.running()


def test_everything_goes_on_while_no_operator_is_there(stack: Stack, job: Job) -> None:
    stack.cluster.kubectl("scale", "deployment", "-n", "penstock-system", "--all", "--replicas=0")
    try:
        job.goes_on()
        job.scale(3)
    finally:
        stack.cluster.kubectl("scale", "deployment", "-n", "penstock-system", "--all", "--replicas=1")
    job.wait_for(phase="Running", parallelism=3)
    job.goes_on()
    job.scale(2)
    job.wait_for(phase="Running", parallelism=2, workers=2)


@pytest.mark.long
def test_a_quota_without_room_for_a_worker_is_told_and_lifting_it_is_enough(stack: Stack, job: Job) -> None:
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
        message = job.stalled("QuotaExceeded")
        assert "exceeded quota: small" in message
        assert "Raise the quota of the namespace" in message
        wait_until(
            lambda: any(event.startswith("QuotaExceeded: ") for event in job.events()),
            lambda: job.told("an event that says so, at the latest at the next look"),
            seconds=60,
        )
    finally:
        stack.cluster.kubectl("delete", "quota", "small")
    job.running()
    job.goes_on()
    assert job.status["jobId"] == incarnation
    assert len(job.pods("worker")) == 2


@pytest.mark.long
def test_a_node_that_does_not_answer_is_told_and_the_job_outlives_it(stack: Stack, job: Job) -> None:
    """Its containers run on, unseen, and write; what they have not committed when their pods are replaced must not show."""
    incarnation = job.status["jobId"]
    before = job.pod_names("master") | job.pod_names("worker")
    stack.cluster.signal("kubelet", signal.SIGSTOP)
    try:
        message = job.stalled("NodeLost")
        assert "does not answer" in message
        assert job.condition("Ready")["status"] == "False"
        wait_until(
            lambda: not before & (job.pod_names("master") | job.pod_names("worker")),
            lambda: job.told("other pods"),
            seconds=120,
        )
    finally:
        stack.cluster.signal("kubelet", signal.SIGCONT)
    job.running()
    job.goes_on()
    assert job.status["jobId"] == incarnation
