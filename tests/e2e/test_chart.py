"""`helm test` runs a job; an upgrade of the operator leaves jobs alone."""

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
    told = stack.cluster.helm("test", RELEASE, "-n", SYSTEM, "--timeout", "6m", timeout=420)
    assert "Phase:          Succeeded" in told
    reasons = [
        e["reason"] for e in stack.list("events", namespace=SYSTEM) if e["involvedObject"]["name"] == "penstock-smoke"
    ]
    assert "DeploySucceeded" in reasons, reasons
    assert stack.list("fj", namespace=SYSTEM) == []


def test_upgrade_of_the_operator_leaves_jobs_alone(stack: Stack, deploy: Callable[..., Job]) -> None:
    job = deploy("undisturbed", parallelism=1).running()
    pods = job.pod_names("master") | job.pod_names("worker")
    stack.install("--set", "operator.logLevel=DEBUG")
    job.goes_on()
    job.running()
    assert job.pod_names("master") | job.pod_names("worker") == pods
    stack.install()
