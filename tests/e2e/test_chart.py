"""`helm test` runs a job, and an upgrade of the operator does not change jobs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.flinkjob import Job
from tests.e2e.stack import RELEASE, SYSTEM, Stack

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(900, func_only=True)]


def test_helm_test_runs_a_job(stack: Stack) -> None:
    stack.add_secret(SYSTEM)
    spec = Job(stack, "smoke", parallelism=1).manifest["spec"]
    stack.install("--set-json", f"test.flinkJobSpec={json.dumps(spec)}", "--set", "test.timeout=5m")
    output = stack.cluster.helm("test", RELEASE, "-n", SYSTEM, "--timeout", "6m", timeout=420)
    assert "Phase:          Succeeded" in output
    reasons = [
        e["reason"] for e in stack.list("events", namespace=SYSTEM) if e["involvedObject"]["name"] == "penstock-smoke"
    ]
    assert "DeploySucceeded" in reasons, reasons
    assert stack.list("fj", namespace=SYSTEM) == []


def test_an_upgrade_of_the_operator_does_not_change_jobs(stack: Stack, deploy: Callable[..., Job]) -> None:
    job = deploy("undisturbed", parallelism=1).wait_until_running()
    pods = job.pod_names("master") | job.pod_names("worker")
    stack.install("--set", "operator.logLevel=DEBUG")
    job.wait_for_output()
    job.wait_until_running()
    assert job.pod_names("master") | job.pod_names("worker") == pods
    stack.install()
