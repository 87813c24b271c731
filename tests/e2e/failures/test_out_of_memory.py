"""Real kills by the kernel for memory: the messages for people, whether the container ends or survives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.stack import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.flinkjob import Job

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.s3,
    pytest.mark.timeout(900, func_only=True),
]

SOON = {"rollback": {"after": "40s"}}


def limit(role: str, memory: str) -> dict[str, Any]:
    return {role: {"resources": {"limits": {"memory": memory}}}}


def events_with_reason(job: Job, reason: str) -> list[str]:
    return [event for event in job.events() if event.startswith(reason)]


def last_termination(job: Job, role: str, memory: str) -> dict[str, Any]:
    """Wait until the status has the termination, with cause, container, limit and remedy."""

    def kept() -> bool:
        last = job.status.get("lastTermination") or {}
        return bool(last.get("reason") == "OOMKilled" and last.get("role") == role)

    wait_until(kept, lambda: job.describe_missing(f"OOMKilled of a {role} in status.lastTermination"), seconds=150)
    last: dict[str, Any] = job.status["lastTermination"]
    assert (last["container"], last["memoryLimit"]) == ("penstock", memory), last
    assert f"memory limit {memory}" in last["message"]
    assert f"Raise spec.{role}.resources.limits.memory" in last["remedy"]
    wait_until(
        lambda: events_with_reason(job, "OOMKilled"), lambda: job.describe_missing("an event OOMKilled"), seconds=30
    )
    event = events_with_reason(job, "OOMKilled")[0]
    assert f"container penstock of {role} {job.name}-{role}-" in event
    assert f"memory limit {memory}" in event
    assert f"Raise spec.{role}.resources.limits.memory" in event
    return last


def test_a_function_that_exhausts_its_workers_memory_is_reported_and_rolled_back(deploy: Callable[..., Job]) -> None:
    """Run out of memory in a function. Under cgroup v1 the kernel kills only the Python worker, and the container survives."""
    job = deploy("hoarding", parallelism=1, spec=limit("worker", "768Mi")).wait_until_running()
    job.wait_for_output()
    before = job.status
    job.edit({"job": {"args": job.args("--hoard")}, **SOON})
    message = job.wait_until_stalled("NotStable", seconds=300)
    assert "memory" in message, message
    assert "768Mi" in message, message
    assert "aise spec.worker.resources.limits.memory" in message, message
    assert "SIGKILL" in message, message
    rejected = job.status["rejected"]
    assert rejected["reason"] == "NotStable"
    assert "768Mi" in rejected["message"]
    assert any("768Mi" in event for event in events_with_reason(job, "RollbackStarted")), job.events()
    wait_until(
        lambda: job.condition("Running")["status"] == "True", lambda: job.describe_missing("a running job"), seconds=240
    )
    job.wait_for_output()
    assert job.status["running"]["revision"] == before["running"]["revision"]


def test_a_worker_limit_below_the_memory_of_its_jvm_is_reported(deploy: Callable[..., Job]) -> None:
    job = deploy("small-worker", parallelism=1, spec=limit("worker", "160Mi") | SOON)
    last_termination(job, "worker", "160Mi")
    message = job.wait_until_stalled("DeployFailed", seconds=240)
    assert "OOMKilled" in message
    assert "memory limit 160Mi" in message
    assert "spec.worker.resources.limits.memory" in message


def test_a_master_limit_below_the_memory_of_its_jvm_is_reported(deploy: Callable[..., Job]) -> None:
    job = deploy("small-master", parallelism=1, spec=limit("master", "200Mi") | SOON)
    last_termination(job, "master", "200Mi")
    message = job.wait_until_stalled("DeployFailed", seconds=240)
    assert "OOMKilled" in message
    assert "memory limit 200Mi" in message
    assert "spec.master.resources.limits.memory" in message
