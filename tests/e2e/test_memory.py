"""A limit is shared out so that the pods stay within it, as the kernel counts; one that is too small is told of beforehand."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.stack import wait_until
from tools.devcluster.cluster import KubectlFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.flinkjob import Job
    from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(900, func_only=True)]

IN_MEMORY = {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}}

TAKE_ALL = """
from pathlib import Path
Path("/proc/1/oom_score_adj").write_text("1000")
taken = []
while True:
    taken.append(b"x" * (1 << 24))
"""
"""Fills the container's memory, after it has asked the kernel to end the container's main process for it: with that ends the container.
Of a process beside it, which the kernel would choose by its size, the kubelet says nothing on a machine with the first version of cgroups."""


def limits(master: str, worker: str) -> dict[str, Any]:
    return {
        "configuration": {"state.backend.type": "rocksdb"},
        "master": {"resources": {"limits": {"memory": master}}},
        "worker": {
            "slots": 2,
            "resources": {"limits": {"memory": worker}},
            "podTemplate": {"spec": {"volumes": [IN_MEMORY]}},
        },
    }


def test_pods_within_their_limits_survive_and_a_limit_that_is_too_small_is_told(deploy: Callable[..., Job]) -> None:
    job: Job = deploy("memory", parallelism=2, spec=limits("640Mi", "1600Mi")).running()
    for _ in range(3):
        job.goes_on()
    (worker,) = job.pods("worker")
    assert next(v for v in worker["spec"]["volumes"] if v["name"] == "tmp")["emptyDir"] == IN_MEMORY["emptyDir"]
    for pod in (worker, *job.pods("master")):
        (container,) = pod["status"]["containerStatuses"]
        assert (container["restartCount"], container["lastState"]) == (0, {}), job.told("its pods")
        assert container["ready"], "the probes are answered"
    assert not [event for event in job.events() if event.startswith("MemoryTight")]

    job.edit({"worker": {"resources": {"limits": {"memory": "1Gi"}}}})

    def told() -> list[str]:
        return [event for event in job.events() if event.startswith("MemoryTight")]

    wait_until(told, lambda: job.told("a warning"), seconds=120)
    assert "spec.worker.resources.limits.memory is 1024Mi" in told()[0]
    assert "or lower spec.worker.slots to 1" in told()[0]


def test_a_worker_that_is_killed_for_memory_is_told_with_its_limit_and_the_job_goes_on(
    stack: Stack, deploy: Callable[..., Job]
) -> None:
    spec = limits("640Mi", "900Mi")
    spec["worker"]["slots"] = 1
    job: Job = deploy("killed", parallelism=1, spec=spec).running()
    job.goes_on()
    before, (worker,) = job.status, job.pods("worker")
    name = worker["metadata"]["name"]
    with contextlib.suppress(KubectlFailed):  # it ends with the container
        stack.cluster.kubectl("exec", name, "-c", "penstock", "--", "python3", "-c", TAKE_ALL)

    def told() -> list[str]:
        return [event for event in job.events() if event.startswith("OOMKilled: ")]

    wait_until(told, lambda: job.told("OOMKilled"), seconds=120)
    for words in (name, "container penstock", "memory limit 900Mi", "Raise spec.worker.resources.limits.memory"):
        assert words in told()[0]
    job.running()
    job.goes_on()
    status = job.status
    last = status["lastTermination"]
    assert (last["reason"], last["exitCode"], last["memoryLimit"], last["pod"]) == ("OOMKilled", 137, "900Mi", name)
    assert "OOMKilled" in job.condition("Running", status)["message"], "it is said what was before"
    assert status["jobId"] == before["jobId"]
    wait_until(lambda: job.status["restarts"] >= 1, lambda: job.told("RESTARTS"), seconds=90)
