"""A job without progress, and one whose storage cannot be read: both are reported, and deletion still works."""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.stack import SECRET, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.flinkjob import Job
    from tests.e2e.stack import Stack

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.s3,
    pytest.mark.timeout(900, func_only=True),
]

BINARY = "e2e-binary"


def test_repeated_restarts_and_the_recovery_from_them_are_reported(stack: Stack, deploy: Callable[..., Job]) -> None:
    job = deploy("restarted", parallelism=1, spec={"health": {"restarts": 3, "window": "2m"}}).wait_until_running()
    job.wait_for_output()
    before = job.status["jobId"]
    (worker,) = job.pod_names("worker")
    stack.cluster.kubectl("exec", worker, "--", "touch", "/tmp/refuse")
    message = job.wait_until_stalled("RestartLoop")
    assert "3 times within 2m" in message
    assert "is refused, as /tmp/refuse is there" in message
    assert any(e.startswith("RestartLoop: ") for e in job.events())
    assert int(job.table()["RESTARTS"]) >= 3
    stack.cluster.kubectl("exec", worker, "--", "rm", "/tmp/refuse")
    wait_until(
        lambda: any(e.startswith("HealthRecovered: ") for e in job.events()),
        lambda: job.describe_missing("an event about the recovery"),
        seconds=240,
    )
    job.wait_until_running()
    job.wait_for_output()
    assert job.status["jobId"] == before


def test_an_unreadable_secret_is_reported_and_does_not_delay_deletion(stack: Stack, deploy: Callable[..., Job]) -> None:
    """The pods have their keys, so the job keeps running. The operator has lost its keys."""
    timeout = 45
    good = (stack.get("secret", SECRET) or {})["data"]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": BINARY}, "data": good}
    stack.cluster.apply(json.dumps(secret))
    spec = {"storage": {"secretName": BINARY}, "deletion": {"savepoint": True, "timeout": f"{timeout}s"}}
    job = deploy("unreadable", parallelism=1, spec=spec).wait_until_running()
    job.wait_for_output()
    broken = {"data": {"AWS_SECRET_ACCESS_KEY": base64.b64encode(b"\xff\xfe\x00").decode()}}
    stack.cluster.kubectl("patch", "secret", BINARY, "--type=merge", "-p", json.dumps(broken))
    job.patch_job(restartNonce=1)
    wait_until(
        lambda: "storage.secretName" in job.condition("Stalled").get("message", ""),
        lambda: job.describe_missing("a message that names the field"),
        seconds=240,
    )
    assert job.condition("Running")["status"] == "True"
    job.wait_for_output()
    began = time.monotonic()
    job.delete(wait=timeout + 60)
    took = time.monotonic() - began
    stack.report.append(f"deletion with a timeout of {timeout} s, storage unreadable: {took:.0f} s")
    assert took < timeout + 20
    job.output.verify()
