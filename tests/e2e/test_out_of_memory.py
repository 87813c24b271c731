"""The kernel kills for memory, for real: what people are told of it, whether the container ends or lives on."""

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


def told(job: Job, reason: str) -> list[str]:
    return [event for event in job.events() if event.startswith(reason)]


def last_termination(job: Job, role: str, memory: str) -> dict[str, Any]:
    """Kept in the status, with cause, container, limit and remedy."""

    def kept() -> bool:
        last = job.status.get("lastTermination") or {}
        return bool(last.get("reason") == "OOMKilled" and last.get("role") == role)

    wait_until(kept, lambda: job.told(f"OOMKilled of a {role} in status.lastTermination"), seconds=150)
    last: dict[str, Any] = job.status["lastTermination"]
    assert (last["container"], last["memoryLimit"]) == ("penstock", memory), last
    assert f"memory limit {memory}" in last["message"]
    assert f"Raise spec.{role}.resources.limits.memory" in last["remedy"]
    wait_until(lambda: told(job, "OOMKilled"), lambda: job.told("an event OOMKilled"), seconds=30)
    event = told(job, "OOMKilled")[0]
    assert f"container penstock of {role} {job.name}-{role}-" in event
    assert f"memory limit {memory}" in event
    assert f"Raise spec.{role}.resources.limits.memory" in event
    return last


def test_function_that_uses_up_the_memory_of_its_worker_is_told_and_taken_back(deploy: Callable[..., Job]) -> None:
    """With control groups of version 1 the kernel kills the Python worker alone, and the container lives on."""
    job = deploy("hoarding", parallelism=1, spec=limit("worker", "768Mi")).running()
    job.goes_on()
    before = job.status
    job.edit({"job": {"args": job.args("--hoard")}, **SOON})
    message = job.stalled("NotStable", seconds=300)
    assert "memory" in message, message
    assert "768Mi" in message, message
    assert "aise spec.worker.resources.limits.memory" in message, message
    assert "SIGKILL" in message, message
    rejected = job.status["rejected"]
    assert rejected["reason"] == "NotStable"
    assert "768Mi" in rejected["message"]
    assert any("768Mi" in event for event in told(job, "RollbackStarted")), job.events()
    wait_until(lambda: job.condition("Running")["status"] == "True", lambda: job.told("it runs again"), seconds=240)
    job.goes_on()
    assert job.status["running"]["revision"] == before["running"]["revision"]


def test_worker_whose_limit_is_below_what_its_jvm_takes(deploy: Callable[..., Job]) -> None:
    job = deploy("small-worker", parallelism=1, spec=limit("worker", "160Mi") | SOON)
    last_termination(job, "worker", "160Mi")
    message = job.stalled("DeployFailed", seconds=240)
    assert "OOMKilled" in message
    assert "memory limit 160Mi" in message
    assert "spec.worker.resources.limits.memory" in message


def test_master_whose_limit_is_below_what_its_jvm_takes(deploy: Callable[..., Job]) -> None:
    job = deploy("small-master", parallelism=1, spec=limit("master", "200Mi") | SOON)
    last_termination(job, "master", "200Mi")
    message = job.stalled("DeployFailed", seconds=240)
    assert "OOMKilled" in message
    assert "memory limit 200Mi" in message
    assert "spec.master.resources.limits.memory" in message
